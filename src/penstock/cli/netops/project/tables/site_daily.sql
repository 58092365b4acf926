-- Traffic of each site and its busiest hour, day by day.
-- partition = "day"
-- time = "day"
-- freshness = "1h"
SELECT
    region,
    site,
    date_trunc('day', hour) AS day,
    sum(bytes) AS bytes,
    max(bytes) AS busiest_hour_bytes,
    sum(errors) AS errors
FROM site_traffic
GROUP BY region, site, date_trunc('day', hour)
