# SPDX-License-Identifier: Apache-2.0 OR MIT
"""How tests are counted, with those that ran again."""

from collections import Counter

import count_tests
import pytest

PASSED = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s\n"
FAILED = """
running 2 tests
..
failures:

---- machine::tests::waits stdout ----
thread 'machine::tests::waits' panicked at crates/llc/src/lib.rs:1:1

failures:
    machine::tests::waits

test result: FAILED. 4 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.20s

error: test failed, to rerun pass `-p barewire-llc --lib`
error: 1 target failed:
    `-p barewire-llc --lib`
cargo test: broken
"""
CRASHED = FAILED.replace("1 target failed:", "2 targets failed:").replace(
    "    `-p barewire-llc --lib`\n", "    `-p barewire-llc --lib`\n    `-p barewire-shm --test rings`\n"
)


def _junit(cases: str) -> str:
    return f"<testsuites><testsuite>{cases}</testsuite></testsuites>"


def _case(name: str, content: str = "") -> str:
    return f'<testcase classname="tests.test_lab" name="{name}">{content}</testcase>'


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "cargo").write_text(PASSED)
    (tmp_path / "lint").write_text("lint: ruff: passed\nlint: mypy: passed\n")
    (tmp_path / "pure.xml").write_text(_junit(_case("a") + _case("b", '<skipped message="no"/>')))
    # What failed in its teardown as well is one test.
    (tmp_path / "lab.xml").write_text(_junit(_case("c", "<failure/>") + _case("c", "<error/>") + _case("d")))
    return tmp_path


def _counted(folder, capsys) -> str:
    count_tests.main(folder)
    return capsys.readouterr().out.strip()


def test_what_fails_counts_by_how_it_ended_when_it_ran_again(folder, capsys):
    assert _counted(folder, capsys) == "7 1 1"
    (folder / "lab.again.xml").write_text(_junit(_case("c")))
    assert _counted(folder, capsys) == "8 0 1"
    (folder / "lab.again.xml").write_text(_junit(_case("c", "<failure/>")))
    assert _counted(folder, capsys) == "7 1 1"


def test_a_run_without_a_file_has_failed(folder, capsys):
    (folder / "lab.xml").unlink()
    assert _counted(folder, capsys) == "6 1 1"


def test_lints_that_end_early_have_failed(folder, capsys):
    (folder / "lint").write_text("")
    (folder / "lab.again.xml").write_text(_junit(_case("c")))
    assert _counted(folder, capsys) == "6 1 1"


def test_rust_tests_that_failed_are_named_and_pass_again(folder, capsys):
    (folder / "cargo").write_text(PASSED + FAILED)
    count_tests.main(folder, "--failed-rust")
    assert capsys.readouterr().out.split() == ["machine::tests::waits"]
    again = PASSED.replace("3 passed", "1 passed")
    assert count_tests.rust_tests(PASSED + FAILED) == Counter(passed=7, failed=1)
    assert count_tests.rust_tests(PASSED + FAILED, again) == Counter(passed=8, failed=0)
    assert count_tests.rust_tests(PASSED + FAILED, FAILED.replace("4 passed", "0 passed")) == Counter(
        passed=7, failed=1
    )


def test_a_namesake_that_passes_again_does_not_make_up_for_a_test_that_fails_again():
    namesake = PASSED.replace("3 passed", "1 passed")
    again = namesake + FAILED.replace("4 passed", "0 passed")
    assert count_tests.rust_tests(PASSED + FAILED, again) == Counter(passed=7, failed=1)
    crashed = "\n".join(line for line in again.splitlines() if "test result: FAILED" not in line)
    assert count_tests.rust_tests(PASSED + FAILED, crashed) == Counter(passed=7, failed=1)


@pytest.mark.parametrize("again", ["", PASSED])
def test_a_program_that_crashes_or_does_not_compile_has_failed_and_cannot_pass_again(again):
    assert count_tests.rust_tests(PASSED + CRASHED, again)["failed"] == (1 if again else 2)
    assert count_tests.rust_tests("error: could not compile\ncargo test: broken\n", again)["failed"] == 1
