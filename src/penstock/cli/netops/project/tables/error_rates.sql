-- Syslog lines and the share of errors in them, per router and hour.
-- partition = "hour"
-- time = "hour"
-- freshness = "25m"
SELECT
    router,
    date_trunc('hour', ts) AS hour,
    count(*) AS lines,
    count_if(level <= 3) AS errors,
    count_if(level <= 3) / count(*) AS error_rate
FROM syslog
GROUP BY router, date_trunc('hour', ts)
