"""`adacompute`, with the leases of a fleet as short as a test wants them: they are arguments, no settings.

python replica.py LEASE serve --json ...
"""

import sys
from functools import partial

from adacompute.cli import main
from adacompute.serve.http import server
from adacompute.serve.spending.redis_client import FleetTiming

if __name__ == "__main__":
    lease = float(sys.argv.pop(1))
    server.serve = partial(server.serve, timing=FleetTiming(lease=lease, beat=lease / 3, account=0.1))
    main()
