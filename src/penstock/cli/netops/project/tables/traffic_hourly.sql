-- Traffic of each router, hour by hour.
-- partition = "hour"
-- time = "hour"
-- priority = 3
-- freshness = "20m"
SELECT
    router,
    date_trunc('hour', ts) AS hour,
    sum(bytes_in) AS bytes_in,
    sum(bytes_out) AS bytes_out,
    sum(errors) AS errors,
    max(cpu) AS peak_cpu,
    count(*) AS samples
FROM router_stats
GROUP BY router, date_trunc('hour', ts)
