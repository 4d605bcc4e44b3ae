"""The GPU's clock, power and temperature while a row is made, sampled by nvidia-smi beside it."""
import statistics
import subprocess
import threading
import time

QUERY = ["clocks.sm", "clocks.mem", "power.draw", "temperature.gpu"]
EVERY_MS = 100
IDLE_WATTS = 150  # an H200 that computes nothing draws 75 to 120 W: loading and compiling count for no clock


class Clocks:
    """Samples from its making on, on a thread that ends with the process."""

    def __init__(self):
        self.samples, self.lock = [], threading.Lock()  # (when, [SM MHz, memory MHz, W, C])
        command = ["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits", "-i", "0",
                   "-lms", str(EVERY_MS)]
        try:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                            stdin=subprocess.DEVNULL, text=True)
        except OSError:
            self.process = None
            return
        threading.Thread(target=self.read, args=(self.process.stdout,), daemon=True).start()

    def read(self, lines):
        for line in lines:
            sample = parsed(line)
            if sample is not None:
                with self.lock:
                    self.samples.append((time.monotonic(), sample))

    def between(self, begin, end):
        """{"clocks": {...}} of the samples with the GPU at work; {} where there are none."""
        with self.lock:
            return summary([sample for when, sample in self.samples if begin <= when <= end])

    def stop(self):
        if self.process is not None:
            self.process.terminate()
            self.process.wait()


def parsed(line):
    """The numbers of a line of nvidia-smi; None where one is missing ("[N/A]", a torn line)."""
    try:
        sample = [float(word) for word in line.split(",")]
    except ValueError:
        return None
    return sample if len(sample) == len(QUERY) else None


def summary(samples):
    busy = [sample for sample in samples if sample[2] >= IDLE_WATTS]
    if not busy:
        return {}
    sm, _, watts, celsius = zip(*busy)
    return {"clocks": {"samples": len(busy), "sm_mhz": statistics.median(sm), "sm_min_mhz": min(sm),
                       "watts": round(statistics.mean(watts), 1), "max_watts": max(watts), "max_celsius": max(celsius)}}
