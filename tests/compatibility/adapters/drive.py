"""Runs an adapter against one server after the other, so that its client is imported only once.

`python drive.py RESET ADAPTER VARIANT URL …`. Before each, the address RESET is asked, by which the scripted
model begins anew; and a line says which server it is.
"""

import runpy
import sys
import urllib.request
from pathlib import Path

import cases


def main(reset: str, adapter: str, variant: str, *urls: str) -> None:
    cases.VARIANT, cases.URLS = variant, urls
    for url in urls:
        urllib.request.urlopen(urllib.request.Request(reset, method="POST")).read()
        print(f"SERVER {url}", flush=True)
        cases.BASE_URL = url
        runpy.run_path(str(Path(__file__).parent / adapter), run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
