"""Where a job may run. A placement walks the ready jobs in the order of the policy and gives each a track, or not yet.

An update cannot be interrupted. So a track given to a long one is lost to the short ones for all that time, and who may
use which track matters more than the order (Golab, Johnson, Shkapenyuk 2011, Sec. 3.2)."""
