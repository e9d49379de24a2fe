"""No test depends on what an earlier run left in the user's cache; those of the cache turn it on for themselves.

No example of a property has a time limit: on a busy machine each would fail some day.
"""

import os

from hypothesis import settings

os.environ["GPUTRACE_CACHE"] = "off"
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
