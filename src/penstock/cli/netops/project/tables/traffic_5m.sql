-- Traffic and load of each router in steps of five minutes.
-- partition = "5m"
-- time = "slot"
-- priority = 5
-- freshness = "12m"
SELECT
    router,
    timestamp_seconds(unix_timestamp(ts) - unix_timestamp(ts) % 300) AS slot,
    sum(bytes_in) AS bytes_in,
    sum(bytes_out) AS bytes_out,
    sum(errors) AS errors,
    avg(cpu) AS cpu,
    count(*) AS samples
FROM router_stats
GROUP BY router, timestamp_seconds(unix_timestamp(ts) - unix_timestamp(ts) % 300)
