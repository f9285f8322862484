package org.kelix.test;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;
import static org.kelix.test.Support.bytes;
import static org.kelix.test.Support.fails;

import org.junit.AfterClass;
import org.junit.BeforeClass;
import org.junit.Test;
import org.kelix.Codec;
import org.kelix.ErrorKind;
import org.kelix.Kelix;
import org.kelix.KelixMap;
import org.kelix.Options;
import org.kelix.Session;
import org.kelix.TableKind;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;

/**
 * What guava's tests of maps do not ask: several clients, many entries, order, codecs, sessions.
 */
public class MapTest {
    private static Server server;
    private static Kelix kelix;

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

    @Test
    public void manyEntriesInOrder() {
        try (Session session = kelix.session()) {
            session.create("numbers", TableKind.NUMBERS);
        }
        KelixMap<Long, String> map = kelix.asMap("numbers", Codec.numbers(), Codec.strings());
        for (long number = 999; number >= 0; number--) {
            map.set(number * number, "v" + number);
        }
        long next = 0;
        for (Map.Entry<Long, String> entry : map.entrySet()) {
            assertEquals(next * next, (long) entry.getKey());
            assertEquals("v" + next, entry.getValue());
            next++;
        }
        assertEquals(1000, next);
        assertEquals(1000, map.size());
        assertTrue(map.containsKey(81L) && !map.containsKey(82L));
        map.clear();
        assertTrue(map.isEmpty());
    }

    @Test
    public void countersOfSeveralThreadsAreExact() throws InterruptedException {
        KelixMap<String, Long> counters = kelix.asMap("counters", Codec.strings(), Codec.numbers());
        List<Support.Other> others = new ArrayList<>();
        for (int thread = 0; thread < 4; thread++) {
            others.add(
                    new Support.Other(
                            () -> {
                                for (int turn = 0; turn < 250; turn++) {
                                    counters.merge("visits", 1L, Long::sum);
                                }
                                return null;
                            }));
        }
        for (Support.Other other : others) {
            assertNull(other.end());
        }
        assertEquals(1000L, (long) counters.get("visits"));
    }

    @Test
    public void bytesAreEqualByTheirBytes() {
        KelixMap<byte[], byte[]> map = kelix.asMap("bytes", Codec.bytes(), Codec.bytes());
        map.put(bytes("k"), bytes("v"));
        assertArrayEquals(bytes("v"), map.get(bytes("k")));
        assertTrue(map.containsValue(bytes("v")));
        assertTrue(map.replace(bytes("k"), bytes("v"), bytes("w")));
        assertTrue(map.remove(bytes("k"), bytes("w")));
        assertNull(map.get(bytes("k")));
    }

    @Test
    public void aCodecMayUseTheMapItself() {
        KelixMap<String, String> inner = kelix.asMap("nested", Codec.strings(), Codec.strings());
        KelixMap<String, String> outer =
                kelix.asMap(
                        "nested",
                        Codec.strings(),
                        Codec.of(Support::bytes, bytes -> Support.text(bytes) + inner.get("b")));
        inner.put("a", "1");
        inner.put("b", "2");
        assertEquals("12", outer.get("a"));
    }

    @Test
    public void codecsThatFailLeaveNoSessionBehind() {
        try (Kelix own = Kelix.connect(new Options().address(server.address()).sessions(1))) {
            KelixMap<String, String> map =
                    own.asMap(
                            "failing",
                            Codec.strings(),
                            Codec.of(
                                    Support::bytes,
                                    bytes -> {
                                        throw new ArithmeticException();
                                    }));
            map.set("k", "v");
            for (int turn = 0; turn < 3; turn++) {
                assertThrows(ArithmeticException.class, () -> map.get("k"));
                assertThrows(ArithmeticException.class, () -> map.put("k", "v"));
                assertThrows(ArithmeticException.class, () -> map.remove("k", "v"));
                map.set("k", "v");
            }
        }
    }

    @Test
    public void anIteratorGivesItsSessionBack() {
        try (Kelix own = Kelix.connect(new Options().address(server.address()).sessions(1))) {
            KelixMap<String, String> map = own.asMap("iterated", Codec.strings(), Codec.strings());
            map.set("k", "v");
            for (int turn = 0; turn < 3; turn++) {
                Iterator<String> keys = map.keySet().iterator();
                assertEquals("k", keys.next());
                assertThrows(NoSuchElementException.class, keys::next);
            }
            assertEquals("v", map.get("k"));
        }
    }

    @Test
    public void tablesWithoutVersionsAreRefused() {
        try (Session session = kelix.session()) {
            session.create("inline", TableKind.INLINE);
        }
        fails(
                ErrorKind.INVALID_ARGUMENT,
                () -> kelix.asMap("inline", Codec.numbers(), Codec.numbers()));
        fails(ErrorKind.INVALID_ARGUMENT, () -> kelix.asMap("people", null, Codec.numbers()));
        fails(
                ErrorKind.INVALID_ARGUMENT,
                () -> kelix.asMap(null, Codec.numbers(), Codec.numbers()));
    }
}
