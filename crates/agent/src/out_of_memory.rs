//! Tells from a command's last output whether it failed for lack of memory.

use std::sync::LazyLock;
use std::time::Duration;

use regex::bytes::Regex;

/// Messages of programs that lack memory: PyTorch on CUDA, ROCm and the host, JAX and XLA, TensorFlow, cuDNN,
/// Python, NumPy, C++, Rust, the C library, and Slurm for a step in which the kernel has killed a process.
static OUT_OF_MEMORY_PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i-u)out[ _]of[ _]memory|OutOfMemoryError|RESOURCE_EXHAUSTED|CUDNN_STATUS_ALLOC_FAILED|CUBLAS_STATUS_ALLOC_FAILED|\b_?(Array)?MemoryError\b|std::bad_alloc|Cannot allocate memory|DefaultCPUAllocator: (can't allocate|not enough) memory|memory allocation of \d+ bytes failed|\boom_kill event",
    )
    .ok()
});

/// How long such a message counts. A program that runs on for longer has got by.
pub(crate) const RECENT_PERIOD: Duration = Duration::from_secs(60);

/// Whether a line of output says that memory ran out.
pub(crate) fn is_out_of_memory(line: &[u8]) -> bool {
    OUT_OF_MEMORY_PATTERN.as_ref().is_some_and(|pattern| pattern.is_match(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_programs_that_lack_memory_are_recognised() {
        for line in [
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "RuntimeError: CUDA error: out of memory",
            "torch.cuda.OutOfMemoryError: HIP out of memory.",
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate",
            "CUDA_ERROR_OUT_OF_MEMORY",
            "MemoryError",
            "MemoryError: Unable to allocate 7.45 GiB",
            "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array with shape (1,)",
            "RuntimeError: DefaultCPUAllocator: not enough memory: you tried to allocate 80000000000 bytes.",
            "OSError: [Errno 12] Cannot allocate memory",
            "memory allocation of 80000000000 bytes failed",
            "slurmstepd: error: Detected 1 oom_kill event in StepId=17.0. Some of the step tasks have been OOM Killed.",
            "srun: error: n1: task 0: Out Of Memory",
            "infill: the command ran out of memory on this node",
            "numpy._core._exceptions._ArrayMemoryError: Unable to allocate: Cannot allocate memory",
            "terminate called after throwing an instance of 'std::bad_alloc'",
            "\u{fffd} out of memory",
        ] {
            assert!(is_out_of_memory(line.as_bytes()), "{line}");
        }
        for line in [
            "memory: 12 GiB",
            "step 7 of 9",
            "loss 0.1 out of 2",
            "NotAMemoryErrorAtAll",
            "a custom MemoryErrors",
        ] {
            assert!(!is_out_of_memory(line.as_bytes()), "{line}");
        }
        assert!(is_out_of_memory(b"\xff\xfe CUDA out of memory"));
    }
}
