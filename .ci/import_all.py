"""Imports every module of the installed packages. Prints each import that failed, and then exits with 1."""

import importlib
import pkgutil
import sys
import traceback

PACKAGES = ("mcp_server", "tools", "resources", "prompts")
OF_EXTRAS = ("prometheus_client", "psycopg", "psycopg_pool")
"""Packages that a default install lacks; a module that imports one is left out where it is missing."""


def main() -> int:
    imported, failed = 0, 0
    for top in PACKAGES:
        below = pkgutil.walk_packages(importlib.import_module(top).__path__, f"{top}.")
        for name in [top, *(module.name for module in below if not module.name.endswith(".__main__"))]:
            try:
                importlib.import_module(name)
                imported += 1
            except Exception as error:
                if isinstance(error, ModuleNotFoundError) and error.name in OF_EXTRAS:
                    continue
                failed += 1
                traceback.print_exc()
    print(f"Python {sys.version.split()[0]}: {imported} modules imported, {failed} failed", flush=True)
    return 1 if failed or not imported else 0


if __name__ == "__main__":
    sys.exit(main())
