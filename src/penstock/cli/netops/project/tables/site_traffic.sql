-- Traffic of each site, hour by hour, by the topology of that day. Until the day's topology has come, it waits.
-- partition = "day"
-- time = "hour"
-- priority = 3
-- freshness = "30m"
SELECT
    p.region,
    p.site,
    t.hour,
    count(*) AS routers,
    sum(t.bytes_in + t.bytes_out) AS bytes,
    sum(t.errors) AS errors
FROM traffic_hourly t
JOIN topology p ON p.router = t.router
GROUP BY p.region, p.site, t.hour
