// Runs import_all.py in Pyodide (CPython for WebAssembly), with warnings as errors.
// Arguments: the folder with the packages, import_all.py, and the names of packages that have no build for WebAssembly.
// An import of one of these gives a placeholder, so that our own modules are still imported.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [site, script, ...absent] = process.argv.slice(2);
const found = createRequire(`${process.cwd()}/package.json`).resolve("pyodide/pyodide.mjs");
const { loadPyodide } = await import(pathToFileURL(found));
const python = await loadPyodide();
python.FS.mkdir("/site");
python.mountNodeFS("/site", site);
python.globals.set("source", readFileSync(script, "utf8"));
python.globals.set("absent", python.toPy(absent));
try {
  const code = python.runPython(`
import importlib.abc, importlib.machinery, sys, warnings
from unittest.mock import MagicMock

class Placeholders(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in absent:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return MagicMock(__path__=[], __name__=spec.name)

    def exec_module(self, module):
        pass

sys.meta_path.insert(0, Placeholders())
sys.path.insert(0, "/site")
warnings.simplefilter("error")
space = {"__name__": "import_all"}
exec(source, space)
space["main"]()
`);
  process.exit(code);
} catch (error) {
  console.error(error.message ?? error);
  process.exit(1);
}
