-- The alerts that wake people up.
-- partition = "hour"
-- time = "raised"
-- priority = 8
-- freshness = "8m"
SELECT raised, router, severity, code, message
FROM alerts
WHERE severity >= 4
