-- Each critical alert with what its router was doing at the time.
-- partition = "hour"
-- time = "raised"
-- priority = 10
-- freshness = "15m"
SELECT
    a.raised,
    a.router,
    a.code,
    t.bytes_in + t.bytes_out AS bytes,
    t.errors,
    t.cpu
FROM critical_alerts a
LEFT JOIN traffic_5m t
    ON t.router = a.router
    AND t.slot = timestamp_seconds(unix_timestamp(a.raised) - unix_timestamp(a.raised) % 300)
