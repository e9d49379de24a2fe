"""No test depends on what an earlier run left in the user's cache; those of the cache turn it on for themselves."""

import os

os.environ["GPUTRACE_CACHE"] = "off"
