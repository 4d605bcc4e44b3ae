"""TensorBoard's event files, read back by a parser that shares nothing with the program's writer."""
import struct
import unittest

import harness
import tiny_run


def crc32c_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC_TABLE = crc32c_table()


def masked_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frames(data):
    """The payloads of a TFRecord file: length, its checksum, payload, its checksum."""
    at = 0
    while at < len(data):
        length, length_crc = struct.unpack_from("<QI", data, at)
        assert length_crc == masked_crc32c(data[at:at + 8]), f"checksum of the length at byte {at}"
        payload = data[at + 12:at + 12 + length]
        (crc,) = struct.unpack_from("<I", data, at + 12 + length)
        assert crc == masked_crc32c(payload), f"checksum of the record at byte {at}"
        yield payload
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(message):
    """(number, value) of each field of a protocol buffer."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        if key & 7 == 0:
            value, at = varint(message, at)
        elif key & 7 == 1:
            (value,), at = struct.unpack_from("<d", message, at), at + 8
        elif key & 7 == 5:
            (value,), at = struct.unpack_from("<f", message, at), at + 4
        else:
            assert key & 7 == 2, f"wire type {key & 7}"
            length, at = varint(message, at)
            value, at = message[at:at + length], at + length
        yield key >> 3, value


def read_events(folder):
    """{tag: {step: value}} of a folder's files by TensorBoard's rules, and the number of scalars in the files."""
    scalars, count = {}, 0
    for path in sorted(folder.iterdir()):
        events = [dict(fields(frame)) for frame in frames(path.read_bytes())]
        assert events[0][3] == b"brain.Event:2", path
        for event in events[1:]:
            if 7 in event and dict(fields(event[7])) == {1: 1}:  # a start: later steps are taken again
                for values in scalars.values():
                    for step in [s for s in values if s >= event[2]]:
                        del values[step]
            if 5 not in event:
                continue
            scalar = dict(fields(dict(fields(event[5]))[1]))
            values = scalars.setdefault(scalar[1].decode(), {})
            assert event[2] not in values, f"step {event[2]} of {scalar[1]} twice"
            values[event[2]] = scalar[2]
            count += 1
    return scalars, count


def as_float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


class TensorBoard(tiny_run.RunTest):
    def assert_equal_to_metrics(self, scalars):
        records = self.records()
        for tag, member, factor in [("lm loss", "loss", 1), ("learning-rate", "lr", 1), ("grad-norm", "grad_norm", 1),
                                    ("loss-scale", "loss_scale", 1), ("iteration-time", "step_ms", 1e-3),
                                    ("throughput", "model_tflops", 1), ("tokens-per-second", "tokens_per_second", 1),
                                    ("mfu", "mfu", 1), ("lm loss validation", "validation_loss", 1)]:
            wanted = {r["step"]: as_float32(r[member] * factor) for r in records if r.get(member) is not None}
            got = scalars.get(tag, {})
            self.assertEqual(sorted(got), sorted(wanted), tag)
            for step, value in wanted.items():
                self.assertAlmostEqual(got[step], value, delta=2e-7 * abs(value), msg=f"{tag}, step {step}")
        self.assertEqual(set(scalars["batch-size"].values()), {8.0})

    def test_events_equal_the_metrics_also_after_a_resume(self):
        self.configure(logging={"tensorboard": {"enabled": True}})
        self.pretrain()
        folder = self.folder / "run" / "tensorboard"
        scalars, count = read_events(folder)
        self.assertEqual(len(scalars["lm loss"]), 30)
        self.assertEqual(sorted(scalars["lm loss validation"]), [10, 20, 30])
        self.assert_equal_to_metrics(scalars)
        # Without the last checkpoint the run continues from step 20: steps 21 to 30 come once more.
        for file in (self.folder / "run/checkpoints/step-00000030").iterdir():
            file.unlink()
        (self.folder / "run/checkpoints/step-00000030").rmdir()
        self.pretrain("--resume", "auto")
        self.assertEqual(len(list(folder.iterdir())), 2)
        resumed, resumed_count = read_events(folder)
        self.assertGreater(resumed_count, count + 70)
        self.assertEqual({tag: len(values) for tag, values in resumed.items() if tag != "mfu"},
                         {tag: len(values) for tag, values in scalars.items() if tag != "mfu"})
        self.assert_equal_to_metrics(resumed)

    def test_no_files_unless_asked(self):
        self.pretrain("--set", "train_steps=6")
        self.assertFalse((self.folder / "run" / "tensorboard").exists())


class Parser(unittest.TestCase):
    """The parser above must see damage."""

    def test_checksums_are_checked(self):
        self.assertEqual(masked_crc32c(b"123456789"), ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF)
        head = struct.pack("<Q", 2)
        record = head + struct.pack("<I", masked_crc32c(head)) + b"ab" + struct.pack("<I", masked_crc32c(b"ab"))
        self.assertEqual(list(frames(record)), [b"ab"])
        for at in range(len(record)):
            damaged = bytearray(record)
            damaged[at] ^= 1
            with self.assertRaises((AssertionError, struct.error)):
                list(frames(bytes(damaged)))


if __name__ == "__main__":
    harness.main()
