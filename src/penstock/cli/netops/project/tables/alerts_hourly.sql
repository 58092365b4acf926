-- How many alerts each router raised, hour by hour.
-- partition = "hour"
-- time = "hour"
-- priority = 2
-- freshness = "20m"
SELECT
    router,
    date_trunc('hour', raised) AS hour,
    count(*) AS alerts,
    count_if(severity >= 4) AS critical,
    max(severity) AS worst
FROM alerts
GROUP BY router, date_trunc('hour', raised)
