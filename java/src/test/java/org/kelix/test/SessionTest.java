package org.kelix.test;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotNull;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;
import static org.kelix.test.Support.bytes;
import static org.kelix.test.Support.fails;
import static org.kelix.test.Support.text;

import org.junit.AfterClass;
import org.junit.Before;
import org.junit.BeforeClass;
import org.junit.Test;
import org.kelix.Arrival;
import org.kelix.Build;
import org.kelix.Built;
import org.kelix.Completion;
import org.kelix.Cursor;
import org.kelix.ErrorKind;
import org.kelix.Frontier;
import org.kelix.Item;
import org.kelix.Kelix;
import org.kelix.KelixException;
import org.kelix.Keys;
import org.kelix.NewItem;
import org.kelix.NewTable;
import org.kelix.PutOptions;
import org.kelix.Rows;
import org.kelix.Scan;
import org.kelix.Session;
import org.kelix.Table;
import org.kelix.TableKind;
import org.kelix.View;
import org.kelix.Walk;
import org.kelix.Walker;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;

/** What sessions do, beside what the script of all languages asks. */
public class SessionTest {
    private static Server server;
    private static Kelix kelix;
    private static Session session;
    private static int made;
    private Table table;

    @BeforeClass
    public static void serve() {
        server = new Server();
        kelix = Kelix.connect(server.address());
        session = kelix.session();
    }

    @AfterClass
    public static void end() {
        session.close();
        kelix.close();
        server.close();
    }

    @Before
    public void fresh() {
        table = session.create("t" + ++made, TableKind.HASH);
    }

    private static byte[] random(int bytes) {
        byte[] random = new byte[bytes];
        new Random(bytes).nextBytes(random);
        return random;
    }

    @Test
    public void valuesOfAllLengths() {
        for (int bytes :
                new int[] {0, 1, 7, 8, 100, 4095, 4096, 4097, 16_000, 70_000, 1 << 20, 5_000_000}) {
            byte[] key = bytes("k" + bytes);
            byte[] value = random(bytes);
            session.put(table, key, value);
            assertArrayEquals(value, session.get(table, key));
            byte[] into = new byte[bytes + 2];
            assertEquals(bytes, session.get(table, key, into, 1, bytes + 1));
            assertArrayEquals(value, Arrays.copyOfRange(into, 1, bytes + 1));
            assertEquals(0, into[0]);
            for (ByteBuffer buffer :
                    List.of(
                            ByteBuffer.allocate(bytes + 3),
                            ByteBuffer.allocateDirect(bytes + 3),
                            offset(bytes + 3))) {
                buffer.position(2);
                assertEquals(bytes, session.get(table, key, buffer));
                assertEquals(2 + bytes, buffer.position());
                byte[] got = new byte[bytes];
                buffer.get(2, got);
                assertArrayEquals(value, got);
            }
        }
    }

    /** A heap buffer whose first byte is not the first of its array. */
    private static ByteBuffer offset(int bytes) {
        return ByteBuffer.allocate(bytes + 5).position(5).slice();
    }

    @Test
    public void keysInBuffers() {
        session.put(table, bytes("key"), bytes("value"));
        ByteBuffer direct = ByteBuffer.allocateDirect(10).put(4, bytes("key")).position(4).limit(7);
        ByteBuffer heap = ByteBuffer.wrap(bytes("a key")).position(2);
        for (ByteBuffer key :
                List.of(direct, heap, heap.asReadOnlyBuffer(), direct.asReadOnlyBuffer())) {
            for (ByteBuffer into : List.of(ByteBuffer.allocate(5), ByteBuffer.allocateDirect(5))) {
                int position = key.position();
                assertEquals(5, session.get(table, key, into));
                assertEquals(position, key.position());
                byte[] got = new byte[5];
                into.flip().get(got);
                assertEquals("value", text(got));
            }
        }
        assertEquals(
                -1, session.get(table, ByteBuffer.allocateDirect(3), ByteBuffer.allocateDirect(3)));
    }

    @Test
    public void aBufferThatIsTooSmallStaysAsItIs() {
        session.put(table, bytes("k"), random(100));
        byte[] array = new byte[99];
        assertEquals(
                100,
                fails(ErrorKind.BUFFER_TOO_SMALL, () -> session.get(table, bytes("k"), array))
                        .neededBytes());
        for (ByteBuffer buffer : List.of(ByteBuffer.allocate(99), ByteBuffer.allocateDirect(99))) {
            KelixException error =
                    fails(ErrorKind.BUFFER_TOO_SMALL, () -> session.get(table, bytes("k"), buffer));
            assertEquals(100, error.neededBytes());
            assertEquals(0, buffer.position());
        }
    }

    @Test
    public void getsThatNeverWait() {
        session.put(table, bytes("k"), bytes("value"));
        ByteBuffer into = ByteBuffer.allocate(100);
        // Now and then a get has to look around first. Then a plain one does that.
        int got = session.tryGet(table, bytes("k"), into);
        for (int turn = 0; got == -2 && turn < 100; turn++) {
            session.get(table, bytes("k"));
            got = session.tryGet(table, bytes("k"), into);
        }
        assertEquals(5, got);
        assertEquals(5, into.position());
        try (Kelix far = Kelix.connect(server.tcp());
                Session own = far.session()) {
            assertEquals(
                    -2, own.tryGet(own.table(table.name()), bytes("k"), ByteBuffer.allocate(100)));
        }
    }

    @Test
    public void endsAndFlags() {
        Instant end = Instant.now().plusSeconds(1000).plusNanos(7);
        PutOptions options = new PutOptions().flags(-1).endsAt(end);
        assertTrue(session.put(table, bytes("k"), bytes("v"), options).done());
        Item item = session.getItem(table, bytes("k"));
        assertEquals(-1, item.flags());
        assertEquals(end, item.endsAt().orElseThrow());
        assertFalse(
                session.put(
                                table,
                                bytes("k"),
                                bytes("w"),
                                new PutOptions().expected(Session.ABSENT))
                        .done());
        assertEquals(
                item.version(),
                session.put(table, bytes("k"), bytes("w"), new PutOptions().expected(7)).version());
        assertTrue(
                session.put(
                                table,
                                bytes("k"),
                                bytes("w"),
                                new PutOptions().expected(item.version()))
                        .done());
        NewItem ending = new NewItem().value(bytes("v")).flags(9).endsIn(Duration.ofDays(1));
        assertFalse(session.putItem(table, bytes("k"), ending, Session.ABSENT).done());
        session.putItem(table, bytes("k"), ending);
        Item put = session.getItem(table, bytes("k"));
        assertTrue(put.flags() == 9 && put.endsAt().isPresent());
    }

    @Test
    public void batches() {
        List<byte[]> keys = new ArrayList<>();
        List<byte[]> values = new ArrayList<>();
        for (int index = 0; index < 2000; index++) {
            keys.add(bytes("key" + index));
            values.add(random(index % 100));
        }
        long[] versions = session.multiPut(table, keys, values);
        assertEquals(2000, versions.length);
        assertEquals(versions[7], session.getItem(table, keys.get(7)).version());
        keys.add(bytes("none"));
        List<byte[]> found = session.multiGet(table, keys);
        for (int index = 0; index < 2000; index++) {
            assertArrayEquals(values.get(index), found.get(index));
        }
        assertNull(found.get(2000));
        int[] starts = new int[2001];
        int[] lengths = new int[2001];
        for (ByteBuffer into :
                List.of(ByteBuffer.allocate(200_000), ByteBuffer.allocateDirect(200_000))) {
            into.position(3);
            session.multiGet(table, keys, into, starts, lengths);
            for (int index = 0; index < 2000; index++) {
                byte[] got = new byte[lengths[index]];
                into.get(starts[index], got);
                assertArrayEquals(values.get(index), got);
            }
            assertEquals(-1, starts[2000]);
            assertTrue(starts[0] >= 3);
        }
        ByteBuffer small = ByteBuffer.allocate(10);
        long needed =
                fails(
                                ErrorKind.BUFFER_TOO_SMALL,
                                () -> session.multiGet(table, keys, small, starts, lengths))
                        .neededBytes();
        assertTrue(needed > 10 && small.position() == 0);
        assertEquals(List.of(), session.multiGet(table, List.of()));
        assertEquals(0, session.multiPut(table, List.of(), List.of()).length);
    }

    @Test
    public void scans() {
        Table days = session.create("days" + made, TableKind.STRINGS);
        for (int day = 100; day < 1100; day++) {
            session.putItem(
                    days,
                    bytes("d" + (1000 + day)),
                    new NewItem()
                            .value(bytes("v" + day))
                            .bytes("even", bytes(day % 2 == 0 ? "yes" : ""))
                            .flags(day));
        }
        Rows rows = session.scan(days, Scan.prefix(bytes("d11")), "even", "none");
        assertEquals(100, rows.size());
        assertEquals("d1100", text(rows.key(0)));
        assertEquals("v100", text(rows.value(0)));
        assertEquals("yes", text(rows.attribute(0, 0).orElseThrow()));
        assertEquals(0, rows.attribute(1, 0).orElseThrow().length);
        assertFalse(rows.attribute(0, 1).isPresent());
        assertEquals(199, rows.flags(99));
        assertEquals(session.getItem(days, bytes("d1100")).version(), rows.version(0));
        assertFalse(rows.endsAt(0).isPresent());
        assertEquals(1000, session.count(days, Scan.all()));
        long estimate = session.estimate(days, Scan.all());
        assertTrue("about a thousand: " + estimate, estimate > 100 && estimate < 10_000);
        Set<String> keys = new HashSet<>();
        try (Cursor cursor =
                session.cursor(
                        days, Scan.all().from(bytes("d1200")).backwards().limit(150), "even")) {
            for (Rows page = cursor.next(40); !page.isEmpty(); page = cursor.next(40)) {
                assertTrue(page.size() <= 40);
                for (int row = 0; row < page.size(); row++) {
                    keys.add(text(page.key(row)));
                    assertTrue(page.attribute(row, 0).isPresent());
                    // The session is free for other things between.
                    assertNotNull(session.get(days, page.key(row)));
                }
            }
            assertEquals(0, cursor.next(40).size());
        }
        assertEquals(150, keys.size());
        int items = 0;
        try (Cursor cursor = session.cursor(days, Scan.all())) {
            for (Item item = cursor.nextItem(); item != null; item = cursor.nextItem()) {
                assertTrue(item.bytes("even").isPresent());
                items++;
            }
        }
        assertEquals(1000, items);
    }

    @Test
    public void numbers() {
        Table stock = session.create("stock" + made, TableKind.INLINE);
        for (long number = 0; number < 100; number++) {
            session.put(stock, Keys.of(number), Keys.of(number * 2));
        }
        session.put(stock, Keys.of(-1), Keys.of(1));
        Rows rows = session.scan(stock, Scan.numbers(10, 19));
        assertEquals(10, rows.size());
        assertEquals(10, Keys.number(rows.key(0)));
        assertEquals(38, Keys.number(rows.value(9)));
        assertEquals(0, rows.flags(0));
        Rows last = session.scan(stock, Scan.numbers(50, -1).backwards().limit(1));
        assertEquals(-1, Keys.number(last.key(0)));
    }

    @Test
    public void linksPathsAndWalks() {
        session.putItem(table, bytes("c"), new NewItem().bytes("name", bytes("C")));
        session.putItem(
                table, bytes("b"), new NewItem().link("next", table, bytes("c"), bytes("edge")));
        session.putItem(
                table,
                bytes("a"),
                new NewItem()
                        .value(bytes("A"))
                        .link("next", table, bytes("b"))
                        .link("next", table, bytes("gone")));
        try (Item a = session.getItem(table, bytes("a"));
                Frontier frontier = new Frontier()) {
            assertEquals("A", text(a.value()));
            assertEquals(3, a.attributes().size());
            assertEquals(table.id(), a.links("next").get(0).tableId());
            try (Item b = session.follow(a, "next")) {
                assertEquals("edge", text(b.links("next").get(0).bytes()));
                fails(ErrorKind.NO_SUCH_ATTRIBUTE, () -> session.follow(b, "other"));
                Item c = session.follow(b, "next");
                assertEquals("C", text(c.bytes("name").orElseThrow()));
                fails(ErrorKind.NO_SUCH_ATTRIBUTE, () -> session.follow(c, "next"));
            }
            assertEquals("c", text(session.followPath(a, "next", "next").key()));
            fails(ErrorKind.NO_SUCH_ATTRIBUTE, () -> session.followPath(a, "next", "next", "next"));
            assertEquals(2, frontier.addLinks(a, "next"));
            frontier.add(table, bytes("c"));
            List<Item> visited = session.visit(frontier);
            assertEquals("b", text(visited.get(0).key()));
            assertNull(visited.get(1));
            assertEquals("c", text(session.visit(frontier, 2, 1).get(0).key()));
            assertEquals(List.of(), session.visit(frontier, 3, 0));
            frontier.clear();
            assertEquals(0, frontier.size());
        }
        try (Walker walker = session.walk(table, bytes("a"), Walk.along("next").depthFirst())) {
            List<Arrival> begun = walker.next(10);
            assertEquals(-1, begun.get(0).from());
            List<String> keys = new ArrayList<>();
            for (List<Arrival> step = begun; !step.isEmpty(); step = walker.next(10)) {
                step.forEach(arrival -> keys.add(text(arrival.item().key()) + arrival.depth()));
            }
            assertEquals(List.of("a0", "b1", "c2"), keys);
            assertEquals(3, walker.items());
            assertEquals(1, walker.gone());
        }
        try (Walker walker = session.walk(table, bytes("a"), Walk.along("next"))) {
            walker.turnBack(walker.next(1).get(0).number());
            assertEquals(List.of(), walker.next(1));
        }
    }

    @Test
    public void aViewStaysWhatItIs() {
        build("shop", "one");
        try (View view = session.view("shop")) {
            Table old = view.table("products");
            build("shop", "two");
            assertEquals("one", text(session.get(old, bytes("k"))));
            assertEquals("two", text(session.get(session.table("products"), bytes("k"))));
            try (View next = session.view("shop")) {
                assertEquals(view.generation() + 1, next.generation());
                assertEquals("two", text(session.get(next.table("products"), bytes("k"))));
            }
            fails(ErrorKind.NO_SUCH_TABLE, () -> view.table("nothing"));
        }
        assertTrue(session.dropDataset("shop"));
    }

    private static void build(String dataset, String value) {
        try (Build build =
                session.build(dataset, List.of(new NewTable("products", TableKind.HASH)))) {
            build.put("products", bytes("k"), bytes(value));
            build.put(
                    "products",
                    bytes("l"),
                    new NewItem().link("to", build.table("products"), bytes("k")));
            Built built = build.finish();
            assertEquals(2, built.items());
            assertEquals(1, built.links());
            assertEquals(0, built.dangling());
        }
    }

    @Test
    public void aBuildLeftByAnExceptionLeavesNothing() {
        List<NewTable> tables = List.of(new NewTable("left" + made, TableKind.HASH));
        assertThrows(
                ArithmeticException.class,
                () -> {
                    try (Build build = session.build("left", tables)) {
                        build.put("left" + made, bytes("k"), bytes("v"));
                        throw new ArithmeticException();
                    }
                });
        fails(ErrorKind.NO_SUCH_TABLE, () -> session.table("left" + made));
        // And one that was left open by a session that ends.
        try (Session other = kelix.session()) {
            other.build("left", tables).put("left" + made, bytes("k"), bytes("v"));
        }
        try (Build build = session.build("left", tables)) {
            fails(ErrorKind.NO_SUCH_TABLE, () -> build.put("other", bytes("k"), bytes("v")));
            build.finish();
            fails(ErrorKind.INVALID_ARGUMENT, build::finish);
            fails(
                    ErrorKind.INVALID_ARGUMENT,
                    () -> build.put("left" + made, bytes("k"), bytes("v")));
        }
        session.dropDataset("left");
    }

    @Test
    public void submittedOperations() {
        session.putItem(table, bytes("a"), new NewItem().link("next", table, bytes("b")));
        session.put(table, bytes("b"), bytes("B"));
        Item a = session.getItem(table, bytes("a"));
        session.submitPut(table, bytes("k"), bytes("v"), -1);
        session.submitGet(table, bytes("b"), 0);
        session.submitGet(table, bytes("none"), 2);
        session.submitCompareAndSet(table, bytes("new"), Session.ABSENT, bytes("v"), 3);
        session.submitCompareAndSet(table, bytes("b"), 99, bytes("v"), 4);
        session.submitCompareAndDelete(table, bytes("b"), 99, 5);
        session.submitDelete(table, bytes("gone"), 6);
        session.submitFollow(a, "next", 7);
        session.submitPutItem(table, bytes("item"), new NewItem().bytes("x", bytes("y")), 8);
        session.submitScan(table, Scan.all().limit(1), 0x7fff_ffff_ffff_ffffL);
        assertEquals(10, session.outstanding());
        List<Completion> ended = new ArrayList<>();
        while (session.outstanding() > 0) {
            ended.addAll(session.poll(3, Duration.ofSeconds(5)));
        }
        ended.sort(java.util.Comparator.comparingLong(Completion::number));
        StringBuilder told = new StringBuilder();
        for (Completion each : ended) {
            told.append(each.number())
                    .append(each.kind())
                    .append(each.done())
                    .append(each.items().size())
                    .append(' ');
        }
        assertEquals(
                "-1WRITTENtrue0 0GOTtrue1 2GOTfalse0 3COMPAREDtrue0 4COMPAREDfalse0 5COMPAREDfalse0"
                    + " 6DELETEDfalse0 7GOTtrue1 8WRITTENtrue0 9223372036854775807PAGEtrue1 ",
                told.toString());
        assertEquals("B", text(ended.get(1).value()));
        assertEquals(List.of(), session.poll(10, Duration.ofSeconds(5)));
        assertTrue(session.descriptor() >= 0);
    }

    @Test
    public void whatOneSubmittedIsNotTheNextOnes() {
        try (Kelix own = Kelix.connect(server.address())) {
            try (Session first = own.session()) {
                first.submitGet(first.table(table.name()), bytes("k"), 1);
            }
            try (Session second = own.session()) {
                assertEquals(0, second.outstanding());
                assertEquals(List.of(), second.poll(1, Duration.ZERO));
            }
        }
    }

    @Test
    public void pagesOfASubmittedScan() {
        Table days = session.create("pages" + made, TableKind.STRINGS);
        for (int index = 0; index < 3000; index++) {
            session.put(days, Keys.of(index), bytes("v"));
        }
        session.submitScan(days, Scan.all(), 1);
        int items = 0;
        int pages = 0;
        while (session.outstanding() > 0) {
            for (Completion page : session.poll(10, Duration.ofSeconds(5))) {
                pages++;
                items += page.items().size();
                if (page.rest() != null) {
                    session.submitPage(page.rest(), 2);
                }
            }
        }
        assertEquals(3000, items);
        assertTrue(pages > 1);
    }

    @Test
    public void whatSessionsAndServersTell() {
        assertEquals("shm", session.fabric());
        assertTrue(session.statistics().startsWith("{"));
        assertTrue(session.cost().messages() > 0);
        assertTrue(session.tables().contains(table.name()));
        assertEquals(table.name(), session.tableById(table.id()).name());
        assertEquals(TableKind.HASH, session.tableById(table.id()).kind());
        fails(ErrorKind.NO_SUCH_TABLE, () -> session.tableById(0xffff));
        fails(ErrorKind.SYSTEM_ERROR, session::snapshot);
        assertNotNull(Kelix.version());
    }
}
