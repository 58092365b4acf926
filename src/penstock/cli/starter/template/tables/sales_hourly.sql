-- Sales of each shop, hour by hour. New rows are folded in; `penstock explain sales_hourly` says why that is possible.
-- partition = "hour"
-- time = "hour"
-- priority = 5
-- freshness = "2h"
SELECT
    shop,
    date_trunc('hour', ordered_at) AS hour,
    count(*) AS orders,
    sum(quantity) AS items,
    sum(quantity * price) AS revenue
FROM orders
GROUP BY shop, date_trunc('hour', ordered_at)
