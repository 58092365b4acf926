-- The ten routers with the most traffic of the day, so far.
-- partition = "day"
-- time = "day"
-- freshness = "1h"
SELECT :partition_start AS day, router, bytes
FROM traffic_daily
ORDER BY bytes DESC, router
LIMIT 10
