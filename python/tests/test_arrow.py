"""What other libraries read of the Arrow interfaces."""

import gc
import threading
import unittest
from typing import Any

import pyarrow
import test_store
from support import Server
from test_store import fresh

import kelix

SERVER: Server


def setUpModule() -> None:
    global SERVER
    SERVER = test_store.SERVER = Server()


def tearDownModule() -> None:
    SERVER.close()


def checked(data: Any) -> Any:
    data.validate(full=True)
    return data


class Arrow(unittest.TestCase):
    def test_scans(self) -> None:
        for rows in (0, 1, 7, 1000, 70_000):
            table = fresh("ordered")
            kelix.connect(SERVER.directory).create(table.name, "ordered")
            pairs = {b"%08d" % number: b"v" * (number % 40) for number in range(rows)}
            table.update(pairs)
            read = checked(pyarrow.table(table.scan().arrow()))
            view = pyarrow.binary_view()
            self.assertEqual(
                read.schema,
                pyarrow.schema([pyarrow.field("key", view, False), pyarrow.field("value", view, False)]),
            )
            self.assertEqual(
                dict(zip(read["key"].to_pylist(), read["value"].to_pylist(), strict=True)), pairs
            )
            part = checked(pyarrow.table(table.scan(prefix=b"0000001", limit=5).arrow()))
            self.assertEqual(
                part["key"].to_pylist(), [key for key in pairs if key.startswith(b"0000001")][:5]
            )

    def test_types(self) -> None:
        inline = fresh("inline", key=int, value=int)
        inline.update((number, number * 3) for number in range(3000))
        read = checked(pyarrow.table(inline.scan(start=5).arrow()))
        self.assertEqual([str(column.type) for column in read.columns], ["uint64", "uint64"])
        self.assertEqual(read["value"].to_pylist(), [number * 3 for number in range(5, 3000)])
        batch = checked(pyarrow.record_batch(inline.arrow([7, 9999, 8])))
        self.assertEqual(
            batch.to_pylist(),
            [{"key": 7, "value": 21}, {"key": 9999, "value": None}, {"key": 8, "value": 24}],
        )
        text = fresh(key=str, value=str)
        text["ä"] = "ö"
        read = checked(pyarrow.table(text.scan().arrow()))
        self.assertEqual(
            ([str(column.type) for column in read.columns], read.to_pylist()),
            (["string_view", "string_view"], [{"key": "ä", "value": "ö"}]),
        )

    def test_attributes(self) -> None:
        table = fresh()
        for number in range(1000):
            attributes = {} if number % 3 == 0 else {"city": b"c%d" % number}
            table.put(b"%d" % number, b"v", attributes=attributes)
        read = checked(pyarrow.table(table.scan(attributes=["city", "nothing"]).arrow()))
        for row in read.to_pylist():
            number = int(row["key"])
            self.assertEqual(
                row,
                {
                    "key": b"%d" % number,
                    "value": b"v",
                    "city": None if number % 3 == 0 else b"c%d" % number,
                    "nothing": None,
                },
            )
        with self.assertRaises(kelix.InvalidArgument):
            table.scan(attributes=["key"]).arrow()

    def test_a_stream_is_read_by_another_thread_and_released_unread(self) -> None:
        table = fresh()
        table.update((b"%d" % number, b"v") for number in range(5000))
        stream = table.scan().arrow()
        found: list[int] = []
        threads = [
            threading.Thread(target=lambda: found.append(pyarrow.table(stream).num_rows)) for _ in range(4)
        ]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(found, [5000] * 4)
        for _ in range(100):
            stream.__arrow_c_stream__()
            table.arrow([b"1"]).__arrow_c_array__()
            pyarrow.RecordBatchReader.from_stream(stream).read_next_batch()

    def test_batches(self) -> None:
        table = fresh()
        table.update((b"%d" % number, b"%d" % (number * 2)) for number in range(1000))
        keys = [b"%d" % number for number in range(0, 2000, 3)]
        batch = checked(pyarrow.record_batch(table.arrow(keys)))
        wanted = [b"%d" % (number * 2) if number < 1000 else None for number in range(0, 2000, 3)]
        self.assertEqual((batch["key"].to_pylist(), batch["value"].to_pylist()), (keys, wanted))
        self.assertEqual(checked(pyarrow.record_batch(table.arrow([]))).num_rows, 0)

    def test_values_stand_where_the_client_has_copied_them(self) -> None:
        """All columns of a batch have the same buffer, which has each byte once."""
        table = fresh("ordered")
        table.update(
            (b"key number %08d" % number, b"a value that is no short one %d" % number)
            for number in range(100)
        )
        for read in (
            pyarrow.table(table.scan().arrow()).to_batches()[0],
            pyarrow.record_batch(table.arrow(list(table))),
        ):
            (_, _, *keys), (_, _, *values) = (read[name].buffers() for name in ("key", "value"))
            self.assertEqual((len(keys), len(values)), (1, 1))
            bytes_of = {name: sum(map(len, read[name].to_pylist())) for name in ("key", "value")}
            if keys[0].address == values[0].address:
                self.assertEqual((keys[0].size, values[0].size), (sum(bytes_of.values()),) * 2)
            else:
                self.assertEqual((keys[0].size, values[0].size), (bytes_of["key"], bytes_of["value"]))

    def test_lengths_around_those_that_stand_in_views(self) -> None:
        for codec in (bytes, str):
            table = fresh("ordered", key=codec, value=codec)
            pairs = [("%c%s" % (65 + length, "k" * length), "v" * (40 - length)) for length in range(41)]
            wanted = pairs if codec is str else [(key.encode(), value.encode()) for key, value in pairs]
            table.update(wanted)
            read = checked(pyarrow.table(table.scan().arrow()))
            self.assertEqual(
                list(zip(read["key"].to_pylist(), read["value"].to_pylist(), strict=True)), wanted
            )
            keys = [key for key, _ in wanted]
            batch = checked(pyarrow.record_batch(table.arrow([*keys, keys[0][:0]])))
            self.assertEqual(batch["value"].to_pylist(), [*(value for _, value in wanted), None])

    def test_what_a_consumer_asks_for(self) -> None:
        table = fresh("ordered", key=str)
        table.put("k", b"a value that is no short one", attributes={"city": b"Ulm"})
        scan = table.scan(attributes=["city"]).arrow()
        plain = pyarrow.schema({"key": pyarrow.string(), "value": pyarrow.binary(), "city": pyarrow.binary()})
        view = pyarrow.schema(
            {"key": pyarrow.string_view(), "value": pyarrow.binary_view(), "city": pyarrow.binary_view()}
        )
        one = pyarrow.schema({"value": pyarrow.binary()})
        row = {"key": "k", "value": b"a value that is no short one", "city": b"Ulm"}
        for asked, types in (
            (plain, plain.types),
            (view, view.types),
            (one, [pyarrow.string_view(), pyarrow.binary(), pyarrow.binary_view()]),
            # What cannot be granted is not.
            (pyarrow.schema({"key": pyarrow.int32(), "value": pyarrow.large_binary()}), view.types),
            (pyarrow.schema([]), view.types),
        ):
            read = checked(pyarrow.RecordBatchReader.from_stream(scan, asked).read_all())
            self.assertEqual((read.schema.types, read.to_pylist()), (types, [row]))
            schema, array = table.arrow(["k", "none"]).__arrow_c_array__(asked.__arrow_c_schema__())
            batch = checked(pyarrow.RecordBatch._import_from_c_capsule(schema, array))
            self.assertEqual(
                (batch.schema.types, batch["value"].to_pylist()), (types[:2], [row["value"], None])
            )
        with self.assertRaises((TypeError, ValueError)):
            table.arrow(["k"]).__arrow_c_array__("no schema")

    def test_batches_have_as_many_rows_as_fit(self) -> None:
        table = fresh("ordered")
        value = bytes(range(256)) * 800
        table.update((b"%06d" % number, value) for number in range(1500))
        sizes = []
        for batch in pyarrow.RecordBatchReader.from_stream(table.scan().arrow()):
            self.assertEqual({bytes(value) for value in batch["value"].to_pylist()}, {value})
            sizes.append(batch.num_rows)
        self.assertEqual(sum(sizes), 1500)
        # The first is small; behind it come such of 64 MiB.
        self.assertLessEqual(max(sizes[1:]) * len(value), 65 << 20)

    def test_a_batch_outlives_the_stream(self) -> None:
        """It has its memory for itself, whatever the stream does later."""
        table = fresh("ordered")
        table.update(
            (b"key number %08d" % number, b"a value that is no short one") for number in range(50_000)
        )
        reader = pyarrow.RecordBatchReader.from_stream(table.scan().arrow())
        first = reader.read_next_batch()
        kept = first["key"].to_pylist()
        rest = [checked(batch).num_rows for batch in reader]
        del reader
        gc.collect()
        self.assertEqual((checked(first)["key"].to_pylist(), first.num_rows + sum(rest)), (kept, 50_000))

    def test_polars_and_duckdb(self) -> None:
        import duckdb
        import polars

        for codec, least in ((bytes, b"key number 00000000"), (str, "key number 00000000")):
            views = fresh("ordered", key=codec, value=codec)
            views.update(
                (least[:11] + (b"%08d" if codec is bytes else "%08d") % number, least)
                for number in range(3000)
            )
            scan = views.scan().arrow()
            wanted = [(key, value) for key, value in views.items()]
            self.assertEqual(polars.DataFrame(scan).rows(), wanted)
            self.assertEqual(duckdb.sql("select * from scan order by key").fetchall(), wanted)
            reader = pyarrow.RecordBatchReader.from_stream(scan)  # noqa: F841, read by its name
            self.assertEqual(duckdb.sql("select min(key), count(*) from reader").fetchall(), [(least, 3000)])

        table = fresh("inline", key=int, value=int)
        table.update((number, number * 3) for number in range(70_000))
        frame = polars.DataFrame(pyarrow.table(table.scan().arrow()))
        direct = polars.DataFrame(table.scan().arrow())
        self.assertTrue(frame.equals(direct))
        self.assertEqual(direct["value"].sum(), sum(range(70_000)) * 3)
        scanned = pyarrow.RecordBatchReader.from_stream(table.scan().arrow())  # noqa: F841, read by its name
        self.assertEqual(
            duckdb.sql("select count(*), max(value) from scanned").fetchall(), [(70_000, 209_997)]
        )

    def test_a_stream_outlives_the_objects_that_it_came_of(self) -> None:
        table = fresh()
        table.update((b"%d" % number, b"v") for number in range(100_000))
        name = table.name
        del table
        reader = pyarrow.RecordBatchReader.from_stream(kelix.connect(SERVER.directory)[name].scan().arrow())
        gc.collect()
        kelix.connect(SERVER.directory)[name][b"0"]
        self.assertEqual(reader.read_all().num_rows, 100_000)

    def test_a_stream_of_a_store_that_was_closed(self) -> None:
        store = kelix.connect(SERVER.directory)
        table = store["closed.stream"]
        table[b"k"] = b"v"
        reader = pyarrow.RecordBatchReader.from_stream(table.scan().arrow())
        store.close()
        with self.assertRaisesRegex(OSError, "closed"):
            reader.read_all()


if __name__ == "__main__":
    unittest.main()
