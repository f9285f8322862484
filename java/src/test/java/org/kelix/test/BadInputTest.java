package org.kelix.test;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;
import static org.junit.Assume.assumeTrue;
import static org.kelix.test.Support.bytes;
import static org.kelix.test.Support.fails;
import static org.kelix.test.Support.text;

import org.junit.AfterClass;
import org.junit.Before;
import org.junit.BeforeClass;
import org.junit.Test;
import org.junit.function.ThrowingRunnable;
import org.kelix.Build;
import org.kelix.Cursor;
import org.kelix.Effect;
import org.kelix.ErrorKind;
import org.kelix.Frontier;
import org.kelix.Item;
import org.kelix.Kelix;
import org.kelix.KelixException;
import org.kelix.Keys;
import org.kelix.NewItem;
import org.kelix.NewTable;
import org.kelix.NoSuchTableException;
import org.kelix.Options;
import org.kelix.PutOptions;
import org.kelix.Rows;
import org.kelix.Scan;
import org.kelix.Session;
import org.kelix.Table;
import org.kelix.TableKind;
import org.kelix.UnavailableException;
import org.kelix.View;
import org.kelix.Walk;
import org.kelix.Walker;

import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;

/** Bad input is an exception with the kind: never a crash, a hang, or a wrong byte. */
public class BadInputTest {
    private static final byte[] K = bytes("k");
    private static Server server;
    private static Kelix kelix;
    private Session session;
    private Table table;

    @BeforeClass
    public static void serve() {
        server = new Server();
        kelix = Kelix.connect(server.address());
    }

    @AfterClass
    public static void end() {
        kelix.close();
        server.close();
    }

    @Before
    public void fresh() {
        session = kelix.session();
        table = session.create("t", TableKind.HASH);
        session.put(table, K, bytes("v"));
    }

    @org.junit.After
    public void allIsAsItWas() {
        assertEquals("v", text(session.get(table, K)));
        session.close();
    }

    private static void invalid(ThrowingRunnable... calls) {
        for (int at = 0; at < calls.length; at++) {
            int index = at;
            try {
                KelixException error = fails(ErrorKind.INVALID_ARGUMENT, calls[index]);
                assertFalse("the call with the index " + index, error.retry());
                assertEquals(Effect.NO, error.effect());
            } catch (AssertionError wrong) {
                throw new AssertionError("the call with the index " + index, wrong);
            }
        }
    }

    @Test
    public void nothing() {
        List<byte[]> none = Arrays.asList(K, null);
        ByteBuffer buffer = ByteBuffer.allocate(10);
        invalid(
                () -> Kelix.connect((String) null),
                () -> Kelix.connect((Options) null),
                () -> session.table(null),
                () -> session.create(null, TableKind.HASH),
                () -> session.create("x", null),
                () -> session.drop(null),
                () -> session.dropDataset(null),
                () -> session.get(null, K),
                () -> session.get(table, null),
                () -> session.get(table, K, (byte[]) null),
                () -> session.get(table, K, (ByteBuffer) null),
                () -> session.get(table, (ByteBuffer) null, buffer),
                () -> session.get(table, (byte[]) null, buffer),
                () -> session.tryGet(table, null, buffer),
                () -> session.tryGet(table, K, null),
                () -> session.getRange(null, K, 0, 1),
                () -> session.put(table, K, null),
                () -> session.put(table, null, K),
                () -> session.put(null, K, K),
                () -> session.put(table, K, K, null),
                () -> session.delete(table, null),
                () -> session.compareAndSet(table, K, 1, null),
                () -> session.compareAndDelete(null, K, 1),
                () -> session.getItem(table, null),
                () -> session.putItem(table, K, null),
                () -> session.follow(null, "x"),
                () -> session.follow(session.getItem(table, K), null),
                () -> session.followPath(session.getItem(table, K), (String[]) null),
                () -> session.followPath(session.getItem(table, K), (String) null),
                () -> session.followPath(session.getItem(table, K)),
                () -> session.multiGet(table, null),
                () -> session.multiGet(table, none),
                () -> session.multiGet(table, List.of(K), null, new int[1], new int[1]),
                () -> session.multiGet(table, List.of(K), buffer, null, new int[1]),
                () -> session.multiPut(table, none, none),
                () -> session.multiPut(table, List.of(K), null),
                () -> session.scan(table, null),
                () -> session.scan(null, Scan.all()),
                () -> session.scan(table, Scan.all(), (String[]) null),
                () -> session.cursor(table, Scan.all(), (String) null),
                () -> session.count(null, Scan.all()),
                () -> session.visit(null),
                () -> session.walk(table, K, null),
                () -> session.walk(table, null, Walk.along("x")),
                () -> session.view(null),
                () -> session.build("d", null),
                () -> session.build("d", Arrays.asList((NewTable) null)),
                () -> session.build("d", List.of(new NewTable(null, TableKind.HASH))),
                () -> session.build("d", List.of(new NewTable("t2", null))),
                () -> session.submitGet(table, null, 1),
                () -> session.submitFollow(null, "x", 1),
                () -> session.submitPage(null, 1),
                () -> session.poll(1, null),
                () -> Walk.along((String[]) null),
                () -> new NewItem().bytes(null, K),
                () -> new NewItem().value(null),
                () -> new NewItem().link("x", null, K),
                () -> new NewItem().link("x", table, null),
                () -> new PutOptions().endsIn(null),
                () -> new PutOptions().endsAt(null),
                () -> Scan.prefix(null),
                () -> Scan.all().from(null),
                () -> new Options().address(null),
                () -> new Options().timeout(null),
                () -> new Options().tls(null),
                () -> new Frontier().add(null, K),
                () -> new Frontier().add(table, null),
                () -> new Frontier().addLinks(null, "x"),
                () -> Keys.number(null));
    }

    @Test
    public void limits() {
        byte[] longKey = new byte[(64 << 10) + 1];
        byte[] array = new byte[10];
        Item item = session.getItem(table, K);
        Rows rows = session.scan(table, Scan.all(), "x");
        Table numbers = session.create("numbers", TableKind.NUMBERS);
        Table inline = session.create("inline", TableKind.INLINE);
        ByteBuffer frozen = ByteBuffer.allocate(10).asReadOnlyBuffer();
        ByteBuffer frozenDirect = ByteBuffer.allocateDirect(10).asReadOnlyBuffer();
        invalid(
                () -> session.get(table, longKey),
                () -> session.get(table, longKey, array),
                () -> session.get(table, ByteBuffer.wrap(longKey), ByteBuffer.allocateDirect(1)),
                () ->
                        session.get(
                                table,
                                ByteBuffer.allocateDirect(longKey.length),
                                ByteBuffer.allocateDirect(1)),
                () -> session.tryGet(table, longKey, ByteBuffer.allocate(1)),
                () -> session.put(table, longKey, K),
                () -> session.delete(table, longKey),
                () -> session.multiGet(table, List.of(K, longKey)),
                () -> session.multiPut(table, List.of(longKey), List.of(K)),
                () -> session.multiPut(table, List.of(K), List.of()),
                () ->
                        session.multiGet(
                                table, List.of(K), ByteBuffer.allocate(10), new int[0], new int[1]),
                () -> session.multiGet(table, List.of(K), frozen, new int[1], new int[1]),
                () -> session.get(table, K, array, -1, 1),
                () -> session.get(table, K, array, 0, -1),
                () -> session.get(table, K, array, 5, 6),
                () -> session.get(table, K, array, 11, 0),
                () -> session.get(table, K, array, Integer.MAX_VALUE, Integer.MAX_VALUE),
                () -> session.get(table, K, frozen),
                () -> session.get(table, K, frozenDirect),
                () -> session.tryGet(table, K, frozen),
                () -> session.getRange(table, K, -1, 1),
                () -> session.getRange(table, K, 0, -1),
                () -> session.create("n".repeat(256), TableKind.HASH),
                () -> session.create("", TableKind.HASH),
                () -> session.create("a/b", TableKind.HASH),
                () -> session.create("t", TableKind.STRINGS),
                () -> session.table("\ud800"),
                () -> session.tableById(-1),
                () -> session.tableById(0x10000),
                () -> session.put(numbers, bytes("short"), K),
                () -> session.get(numbers, bytes("short")),
                () -> session.put(inline, Keys.of(1), K),
                () -> session.putItem(table, K, new NewItem().bytes("n".repeat(256), K)),
                () -> session.putItem(table, longKey, new NewItem().value(K)),
                () -> session.scan(table, Scan.all().from(K)),
                () -> session.scan(table, Scan.numbers(1, 2)),
                () -> session.visit(new Frontier(), 0, 1),
                () -> session.visit(new Frontier(), -1, 1),
                () -> session.visit(new Frontier(), 0, -1),
                () -> session.poll(0, Duration.ZERO),
                () -> session.submitGet(table, longKey, 1),
                () -> session.cursor(table, Scan.all()).next(0),
                () -> session.walk(table, K, Walk.along("x")).next(-1),
                () -> session.walk(table, K, Walk.along("x")).next(Integer.MAX_VALUE),
                () -> rows.key(-1),
                () -> rows.value(rows.size()),
                () -> rows.attribute(0, 1),
                () -> rows.attribute(0, -1),
                () -> Scan.all().limit(0),
                () -> Walk.along("x").depth(0),
                () -> Keys.number(new byte[7]),
                () -> new PutOptions().endsIn(Duration.ZERO),
                () -> new PutOptions().endsIn(Duration.ofSeconds(-1)),
                () -> new PutOptions().endsIn(Duration.ofDays(365_000)),
                () -> new PutOptions().endsAt(Instant.EPOCH),
                () -> new PutOptions().endsAt(Instant.MAX),
                () -> new Options().timeout(Duration.ofMillis(-1)),
                () -> new Options().sessions(0),
                () -> Kelix.connect("host:port"),
                () -> Kelix.connect("\ud800"),
                () ->
                        Kelix.connect(
                                new Options()
                                        .address(server.tcp())
                                        .certificate(Path.of("x"), Path.of(""))));
        fails(ErrorKind.NO_SUCH_ATTRIBUTE, () -> session.follow(item, "x"));
        fails(ErrorKind.NO_SUCH_ATTRIBUTE, () -> session.submitFollow(item, "x", 1));
        assertEquals(0, session.outstanding());
        assertThrows(NoSuchTableException.class, () -> session.table("nobody"));
        assertThrows(NoSuchTableException.class, () -> session.view("nobody"));
    }

    @Test
    public void whatIsClosed() {
        Session other = kelix.session();
        session.putItem(table, bytes("linked"), new NewItem().link("to", table, K));
        Cursor cursor = other.cursor(table, Scan.all());
        Walker walker = other.walk(table, K, Walk.along("to"));
        View view;
        try (Build build = other.build("closed", List.of(new NewTable("closed", TableKind.HASH)))) {
            build.finish();
            view = other.view("closed");
            invalid(() -> build.table("closed"));
        }
        Build left = other.build("left", List.of(new NewTable("left", TableKind.HASH)));
        Item item = other.getItem(table, bytes("linked"));
        Frontier frontier = new Frontier();
        frontier.close();
        frontier.close();
        invalid(() -> frontier.add(table, K), () -> session.visit(frontier));
        cursor.close();
        invalid(() -> cursor.next(1), cursor::nextItem, () -> session.submitPage(cursor, 1));
        Cursor open = other.cursor(table, Scan.all());
        other.close();
        other.close();
        invalid(
                () -> other.get(table, K),
                () -> other.get(table, K, new byte[1]),
                () -> other.get(table, K, ByteBuffer.allocateDirect(9)),
                () -> other.put(table, K, K),
                () -> other.getItem(table, K),
                () -> other.multiGet(table, List.of(K)),
                () -> other.scan(table, Scan.all()),
                other::tables,
                other::fabric,
                other::descriptor,
                () -> open.next(1),
                () -> walker.next(1),
                walker::items,
                () -> view.table("closed"),
                () -> left.put("left", K, K),
                left::finish);
        left.close();
        open.close();
        walker.close();
        view.close();
        // The item is no session's.
        assertEquals("k", text(session.follow(item, "to").key()));
        item.close();
        item.close();
        assertEquals("k", text(item.links("to").get(0).key()));
        invalid(() -> session.follow(item, "to"), () -> session.submitFollow(item, "to", 1));
        session.dropDataset("closed");
        Kelix own = Kelix.connect(server.address());
        Session last = own.session();
        own.close();
        own.close();
        invalid(() -> last.get(table, K), own::session, own::async);
        last.close();
    }

    @Test
    public void anotherServersThings() {
        try (Server second = new Server();
                Kelix far = Kelix.connect(second.address());
                Session other = far.session()) {
            Table there = other.create("there", TableKind.HASH);
            other.putItem(there, K, new NewItem().link("to", there, K));
            Item item = other.getItem(there, K);
            for (ThrowingRunnable call :
                    new ThrowingRunnable[] {
                        () -> session.get(there, K),
                        () -> session.get(there, K, new byte[10]),
                        () ->
                                session.get(
                                        there,
                                        ByteBuffer.allocateDirect(1),
                                        ByteBuffer.allocateDirect(9)),
                        () -> session.put(there, K, K),
                        () -> session.scan(there, Scan.all()),
                        () -> session.multiGet(there, List.of(K)),
                        () -> session.putItem(table, K, new NewItem().link("to", there, K)),
                        () -> session.follow(item, "to")
                    }) {
                KelixException error = assertThrows(KelixException.class, call);
                assertTrue(
                        error.toString(),
                        List.of(
                                        ErrorKind.NO_SUCH_TABLE,
                                        ErrorKind.SUPERSEDED,
                                        ErrorKind.INVALID_ARGUMENT)
                                .contains(error.kind()));
                assertFalse(error.retry());
            }
        }
    }

    @Test
    public void serversThatAreNotThere() {
        for (String address : List.of("/nowhere", "127.0.0.1:1")) {
            UnavailableException error =
                    assertThrows(UnavailableException.class, () -> Kelix.connect(address));
            assertEquals(ErrorKind.UNAVAILABLE, error.kind());
            assertTrue(error.retry());
        }
    }

    /**
     * A buffer over memory that was freed is an exception on Java 22 and newer, whose arenas free
     * it.
     */
    @Test
    public void memoryThatWasFreed() throws Exception {
        assumeTrue(Runtime.version().feature() >= 22);
        Class<?> arenas = Class.forName("java.lang.foreign.Arena");
        AutoCloseable arena = (AutoCloseable) arenas.getMethod("ofConfined").invoke(null);
        Method allocate = arenas.getMethod("allocate", long.class);
        Object segment = allocate.invoke(arena, 100L);
        ByteBuffer buffer =
                (ByteBuffer)
                        Class.forName("java.lang.foreign.MemorySegment")
                                .getMethod("asByteBuffer")
                                .invoke(segment);
        assertEquals(1, session.get(table, K, buffer));
        arena.close();
        buffer.clear();
        assertThrows(IllegalStateException.class, () -> session.get(table, K, buffer));
        assertThrows(
                IllegalStateException.class,
                () -> session.get(table, buffer, ByteBuffer.allocate(9)));
        assertNull(session.get(table, bytes("none")));
    }
}
