-- Traffic of each router, day by day.
-- partition = "day"
-- time = "day"
-- freshness = "40m"
SELECT
    router,
    date_trunc('day', hour) AS day,
    sum(bytes_in + bytes_out) AS bytes,
    sum(errors) AS errors,
    max(peak_cpu) AS peak_cpu
FROM traffic_hourly
GROUP BY router, date_trunc('day', hour)
