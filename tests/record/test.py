#!/usr/bin/env python3
"""`run` and `check` with programs that only print."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import record

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = {
    "suite": """if [[ $1 == --list ]]; then
printf '%s: test\\n' cpu::spmm::sums cuda::spmm::sums cuda::trees::rows::{a,b,c,d,e,f,g} cuda::uploads::{a,b,c} vulkan::spmm::sums
else echo "on GPU $CUDA_VISIBLE_DEVICES."; [[ $2 == "$FAILS" ]] && bad=1; echo "test result: ok. 2 passed; ${bad:-0} failed; 1 ignored; 9 filtered out"; fi
exit ${bad:-0}""",
    "devices-0123": """if [[ $1 == --list ]]; then printf '%s: test\\n' report::page cuda::training::ends vulkan::training::ends
else [[ $GRAPHSIEVE_REQUIRE_CUDA$GRAPHSIEVE_REQUIRE_VULKAN == 1 ]] &&
echo 'test result: ok. 1 passed; 0 failed; 0 ignored'; fi""",
    "graphsieve": """case $1 in info) echo '{"version": "0"}';; --version) echo graphsieve 0;;
*) [[ " $* " != *" bench "* ]] || echo '{"rows": [{"error": 1e-7, "error_bound": 1e-4}, {"error": null}]}';; esac""",
    "compute-sanitizer": """tool=$2; while [[ $1 == --* ]]; do shift 2 || exit; done; "$@" || exit
[[ $tool == racecheck ]] && echo '========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)' && exit
for kernel in $KERNELS; do echo "=========     at $kernel+0x210 in default_program:47"; done
echo "========= ERROR SUMMARY: ${FINDINGS:-0} errors"
""",
    "nvidia-smi": """[[ $1 == --query-gpu=index ]] && printf '0\\n1\\n' || { [[ $1 ]] && echo 'Some GPU, 570.1' || echo '| Driver Version: 570.1   CUDA Version: 12.8 |'; }""",
}


class Records(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "kernels").mkdir()
        (self.root / "kernels/lib.rs").write_text("one\n")
        (self.root / "Cargo.lock").write_text("lock\n")
        (self.root / "tests/record").mkdir(parents=True)
        for name in ["record.py", "run", "check"]:
            shutil.copy(HERE / name, self.root / "tests/record")
        (self.root / "bin").mkdir()
        for name, body in PROGRAMS.items():
            (self.root / "bin" / name).write_text(f"#!/bin/bash\n{body}\n")
            (self.root / "bin" / name).chmod(0o755)
        self.git("init", "-q")
        self.git("add", "kernels", "Cargo.lock")
        self.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")
        self.file = self.root / "tests/record/device.json"

    def git(self, *words):
        subprocess.run(["git", *words], cwd=self.root, check=True)

    def say(self, script, *words, **environment):
        paths = {"PATH": f"{self.root}/bin:{os.environ['PATH']}"}
        command = [str(self.root / "tests/record" / script), *words]
        own = {name: value for name, value in os.environ.items() if not name.startswith("GRAPHSIEVE_")}
        return subprocess.run(command, env=own | paths | environment, capture_output=True, text=True)

    def run_all(self, *words, **environment):
        return self.say("run", "--bin", str(self.root / "bin"), "--by", "A. Tester", *words, **environment)

    def assert_check(self, words, release):
        for environment, status in [({}, 0), ({"GRAPHSIEVE_RELEASE": "1"}, release)]:
            said = self.say("check", **environment)
            self.assertIn(words, said.stdout, said.stderr)
            self.assertEqual(said.returncode, status)

    def test_a_record_of_all_steps_passes_until_kernels_change(self):
        self.assert_check("there is no record", 1)
        said = self.run_all()
        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
        found = json.loads(self.file.read_text())
        self.assertTrue(found["passed"])
        self.assertEqual(found["totals"]["cuda tests_passed"], 7)
        self.assertEqual(found["totals"]["memcheck findings"], 0)
        # A process for each of seven and of three; initcheck leaves the three out.
        for tool, passed in [("memcheck", 22), ("racecheck", 22), ("initcheck", 16)]:
            self.assertEqual(found["totals"][f"{tool} tests_passed"], passed)
        self.assertEqual(found["machines"][0]["driver"], "570.1")
        command = "git ls-files kernels Cargo.lock | LC_ALL=C sort | xargs sha256sum | sha256sum"
        digest = subprocess.run(command, shell=True, cwd=self.root, capture_output=True, text=True).stdout.split()[0]
        self.assertEqual(found["sources"], digest)
        self.assert_check("on record for these kernels", 0)
        (self.root / "kernels/lib.rs").write_text("two\n")
        self.assert_check("older than the kernels", 1)
        self.git("tag", "v1")
        self.assertEqual(self.say("check").returncode, 1)

    def test_calls_go_on_where_others_stopped_and_merge(self):
        self.assertEqual(self.run_all("--steps", "cuda", "--only", "suite").returncode, 0)
        self.assert_check("0 failed and", 1)
        other = self.root / "other.json"
        self.assertEqual(self.run_all("--steps", "vulkan,bench,memcheck,racecheck", "--out", str(other)).returncode, 0)
        said = self.run_all("--merge", str(other))
        self.assertNotIn("cuda: suite", said.stdout)
        self.assertIn("initcheck: train stage1 sampled ok", said.stdout)
        self.assert_check("on record for these kernels", 0)
        self.assertEqual(self.run_all("--seconds", "0", "--out", str(self.root / "none.json")).returncode, 0)
        self.assertFalse(json.loads((self.root / "none.json").read_text())["passed"])

    def test_failures_findings_and_edits_are_no_pass(self):
        self.assertEqual(self.run_all(FAILS="cuda::spmm::").returncode, 1)
        found = json.loads(self.file.read_text())
        self.assertIn("cuda: suite cuda::spmm::", found["failed"])
        self.assert_check("failed and 0 are missing", 1)
        self.assertEqual(self.run_all().returncode, 0)
        self.assertEqual(self.run_all("--out", str(self.root / "new.json"), FINDINGS="3").returncode, 1)
        self.file.write_text(self.file.read_text().replace("A. Tester", "B. Tester"))
        self.assert_check("the checksum does not fit", 1)

    def test_what_the_copying_kernel_reads_is_counted_apart_by_initcheck_alone(self):
        for kernels, findings, tool, status in [
            ("copy_kernel_t_f32_n_1 copy_kernel_t_f32_n_2", "2", "initcheck", 0),
            ("copy_kernel_t_f32_n_1 copy_kernel_t_f32_n_2", "2", "memcheck", 1),
            ("copy_kernel_t_f32_n_1 matmul_entry_lhs_f32", "2", "initcheck", 1),
            ("copy_kernel_t_f32_n_1", "2", "initcheck", 1),
            ("copy_kernel_t_f32_n_1 spmm_kernel", "2", "initcheck", 1),
        ]:
            file = self.root / f"{kernels} {tool}.json"
            said = self.run_all("--steps", tool, "--out", str(file), KERNELS=kernels, FINDINGS=findings)
            self.assertEqual(said.returncode, status, said.stdout)
        found = json.loads((self.root / "copy_kernel_t_f32_n_1 copy_kernel_t_f32_n_2 initcheck.json").read_text())
        self.assertEqual((found["totals"]["initcheck findings"], found["totals"]["initcheck elsewhere"] > 20), (0, True))

    def test_a_copy_without_git_has_the_same_digest_and_other_sources_are_refused(self):
        self.run_all("--steps", "cuda")
        shutil.rmtree(self.root / ".git")
        said = self.run_all("--steps", "vulkan")
        self.assertEqual(said.returncode, 0, said.stderr)
        (self.root / "kernels/lib.rs").write_text("two\n")
        self.assertIn("its sources are others", self.run_all().stderr)

    def test_a_result_names_the_programs_that_gave_it(self):
        self.run_all("--steps", "cuda")
        (self.root / "bin/suite").write_text((self.root / "bin/suite").read_text() + "\n")
        self.run_all("--steps", "cuda,vulkan")
        found = json.loads(self.file.read_text())
        one, other = (machine["programs"] for machine in found["machines"])
        self.assertNotEqual(one["suite"], other["suite"])
        self.assertEqual(one["devices"], other["devices"])
        machine_of = {step: {result["machine"] for result in found["results"][step].values()} for step in ["cuda", "vulkan"]}
        self.assertEqual(machine_of, {"cuda": {0}, "vulkan": {1}})

    def test_units_that_took_long_or_are_unknown_start_first(self):
        self.run_all("--steps", "memcheck")
        found = record.read(self.file)
        units = found["results"]["memcheck"]
        *_, longest, unknown = units
        units[longest]["seconds"] = 1000
        del units[unknown]
        record.write(self.file, found)
        said = self.run_all("--steps", "memcheck", "--jobs", "1", "--out", str(self.root / "other.json"))
        begun = [line for line in said.stdout.splitlines() if line.startswith("memcheck: ")]
        self.assertEqual(len(begun), len(units) + 1)
        self.assertTrue(begun[0].startswith(f"memcheck: {unknown} "), begun)
        self.assertTrue(begun[1].startswith(f"memcheck: {longest} "), begun)

    def test_units_of_the_sanitizers_take_turns_on_the_gpus(self):
        self.run_all("--steps", "cuda,memcheck", "--jobs", "4")
        said = [path.read_text() for path in (self.root / "target/record").glob("memcheck-suite-*")]
        counts = [sum(f"on GPU {gpu}." in text for text in said) for gpu in "01"]
        self.assertEqual(sum(counts), len(said))
        self.assertTrue(all(counts), counts)
        self.run_all("--steps", "memcheck", "--out", str(self.root / "one.json"), CUDA_VISIBLE_DEVICES="1")
        said = [path.read_text() for path in (self.root / "target/record").glob("memcheck-suite-*")]
        self.assertTrue(all("on GPU 1." in text for text in said))
        self.assertIn("on GPU .", (self.root / "target/record/cuda-suite-cuda-spmm.log").read_text())


if __name__ == "__main__":
    unittest.main()
