-- What each router carried in its life: its previous day and today.
-- partition = "day"
-- time = "day"
-- columns = "day timestamp, router string, days bigint, bytes bigint, errors bigint"
-- sources.router_lifetime = "SELF - 1"
-- priority = 2
-- freshness = "1h"
SELECT
    :partition_start AS day,
    coalesce(t.router, p.router) AS router,
    coalesce(p.days, 0) + CASE WHEN t.router IS NULL THEN 0 ELSE 1 END AS days,
    coalesce(p.bytes, 0) + coalesce(t.bytes, 0) AS bytes,
    coalesce(p.errors, 0) + coalesce(t.errors, 0) AS errors
FROM traffic_daily t
FULL JOIN router_lifetime p ON p.router = t.router
