"""All modules that an import lacks, found in one go."""

import subprocess
import sys

from miles_sim.targets import missing

SEARCH = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("missing", {file!r})
missing = importlib.util.module_from_spec(spec)
spec.loader.exec_module(missing)
sys.path.insert(0, {folder!r})
try:
    import needy
except ModuleNotFoundError as error:
    print(*missing.missing_modules(["needy", "other"], error))
"""


def search(folder, needy, other=""):
    (folder / "needy.py").write_text(needy)
    (folder / "other.py").write_text(other)
    script = SEARCH.format(file=missing.__file__, folder=str(folder))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_each_absent_package_is_named_once_whatever_is_made_of_it(tmp_path):
    needy = """
from absent_one.deep import thing
import absent_two.sub as two
import absent_one

@thing(1)
class Mine(two.Base):
    pass
"""
    assert search(tmp_path, needy, "import absent_three") == ["absent_one", "absent_two", "absent_three"]


def test_what_may_be_absent_is_not_named(tmp_path):
    needy = "import absent_one\ntry:\n    import optional_one\nexcept ImportError:\n    optional_one = None\n"
    assert search(tmp_path, needy) == ["absent_one"]


def test_a_module_that_a_package_lacks_is_named_in_full(tmp_path):
    assert search(tmp_path, "import email.there_is_none\nimport absent_one") == ["email.there_is_none", "absent_one"]


def test_what_an_empty_module_cannot_stand_in_for_ends_the_search(tmp_path):
    needy = "import absent_one\nassert absent_one.VERSION == 3\nimport absent_two\n"
    assert search(tmp_path, needy) == ["absent_one"]
