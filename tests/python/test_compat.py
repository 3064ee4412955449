"""The example code of pie's memory_profiler, unmodified, by the import that it has."""

import os
import unittest

from support import ProfileTest, checkpoints

EXAMPLE = '''
import torch
model = torch.nn.Linear(16, 16)
input = torch.randn(4, 16)
preprocess = postprocess = lambda x: x * 2

from memory_profiler import (
    initialize_memory_tracker,
    memory_checkpoint,
    stop_memory_tracker,
)

# Initialize with custom settings
initialize_memory_tracker(output_dir="./profiles", enabled=True)

# Optional: Manual checkpoint at specific points
memory_checkpoint("after_model_load")

from memory_profiler import get_memory_tracker

tracker = get_memory_tracker()

# Track memory delta for a specific operation
with tracker.track_operation("model_forward"):
    output = model.forward(input)

# Track nested operations
with tracker.track_operation("full_inference"):
    with tracker.track_operation("preprocessing"):
        processed_input = preprocess(input)

    with tracker.track_operation("forward_pass"):
        output = model.forward(processed_input)

    with tracker.track_operation("postprocessing"):
        result = postprocess(output)

from memory_profiler import get_memory_tracker

tracker = get_memory_tracker()

# Track all PyTorch operations during forward pass
with tracker.track_pytorch_ops():
    output = model.forward(input)

# Stop and save
stop_memory_tracker()

from memory_profiler import get_memory_summary, save_memory_profile
assert save_memory_profile() is None
assert get_memory_summary()["peak_bytes"] > 0

initialize_memory_tracker(
    output_dir=".",      # Where to save JSON files
    enabled=True,        # Enable/disable tracking
    interval=5.0,        # Snapshot interval in seconds
)
'''


class Compat(ProfileTest):
    def run_example(self, code, folder):
        here = os.path.dirname(os.path.abspath(__file__))
        python = os.path.join(os.path.dirname(os.path.dirname(here)), "python")
        self.run_program(code, env={"PYTHONPATH": os.path.join(python, folder)})
        profile = self.profile("profiles/memory_profile_????????_??????.json")
        self.assertLessEqual({"metadata", "snapshots", "operation_allocations", "operation_summary",
                              "pytorch_operations"}, set(profile))
        self.assertIn("after_model_load", checkpoints(profile))
        for name in ("model_forward", "full_inference", "preprocessing", "forward_pass",
                     "postprocessing"):
            self.assertEqual(1, profile["operation_summary"][name]["invocation_count"])
        self.assertEqual(4 * 4 * 16 / 2**20,
                         profile["operation_summary"]["model_forward"]["total_memory_delta_mb"])
        self.assertIn("aten::linear", {op["op_name"] for op in profile["pytorch_operations"]})
        self.only("memory_profile_????????_??????.json")  # the last one, saved by the exit

    def test_the_example_runs_unmodified(self):
        self.run_example(EXAMPLE, "compat")

    def test_and_with_its_import_line_changed(self):
        self.run_example(
            EXAMPLE.replace("from memory_profiler import", "from ration.profiler import"), "")


if __name__ == "__main__":
    unittest.main()
