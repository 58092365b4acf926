-- Sales of each shop, day by day. It reads the hours of its day; the day in progress is kept up to date.
-- partition = "day"
-- time = "day"
-- freshness = "6h"
SELECT
    shop,
    date_trunc('day', hour) AS day,
    sum(orders) AS orders,
    sum(items) AS items,
    sum(revenue) AS revenue,
    max(revenue) AS best_hour
FROM sales_hourly
GROUP BY shop, date_trunc('day', hour)
