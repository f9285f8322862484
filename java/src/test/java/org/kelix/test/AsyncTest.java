package org.kelix.test;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;
import static org.kelix.test.Support.bytes;
import static org.kelix.test.Support.fails;
import static org.kelix.test.Support.text;

import org.junit.Test;
import org.kelix.Async;
import org.kelix.Compared;
import org.kelix.ErrorKind;
import org.kelix.Item;
import org.kelix.Kelix;
import org.kelix.KelixException;
import org.kelix.NewItem;
import org.kelix.Options;
import org.kelix.Scan;
import org.kelix.Session;
import org.kelix.Table;
import org.kelix.TableKind;
import org.kelix.UnavailableException;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;

/** Operations that end later. */
public class AsyncTest {
    private static KelixException error(CompletableFuture<?> future) {
        CompletionException thrown = assertThrows(CompletionException.class, future::join);
        return (KelixException) thrown.getCause();
    }

    @Test
    public void overSharedMemory() {
        try (Server server = new Server()) {
            run(server.address());
        }
    }

    @Test
    public void overTcp() {
        try (Server server = new Server()) {
            run(server.tcp());
        }
    }

    private static void run(String address) {
        try (Kelix kelix = Kelix.connect(address)) {
            Table table;
            Table days;
            try (Session session = kelix.session()) {
                table = session.create("t", TableKind.HASH);
                days = session.create("days", TableKind.STRINGS);
            }
            Async async = kelix.async();
            assertTrue(async.put(table, bytes("k"), bytes("v")).join() != 0);
            assertEquals("v", text(async.get(table, bytes("k")).join()));
            assertNull(async.get(table, bytes("none")).join());
            long version = async.getItem(table, bytes("k")).join().version();
            assertFalse(
                    async.compareAndSet(table, bytes("k"), Session.ABSENT, bytes("w"))
                            .join()
                            .done());
            Compared compared = async.compareAndSet(table, bytes("k"), version, bytes("w")).join();
            assertTrue(compared.done());
            async.putItem(table, bytes("from"), new NewItem().link("to", table, bytes("k"))).join();
            Item from = async.getItem(table, bytes("from")).join();
            assertEquals("w", text(async.follow(from, "to").join().value()));
            assertTrue(async.compareAndDelete(table, bytes("k"), compared.version()).join().done());
            assertFalse(async.delete(table, bytes("k")).join());
            assertNull(async.follow(from, "to").join());
            assertEquals(
                    ErrorKind.INVALID_ARGUMENT, error(async.get(table, new byte[100_000])).kind());
            assertEquals(ErrorKind.NO_SUCH_ATTRIBUTE, error(async.follow(from, "other")).kind());
            fails(ErrorKind.INVALID_ARGUMENT, () -> async.get(table, null));
            fails(ErrorKind.INVALID_ARGUMENT, () -> async.put(null, bytes("k"), bytes("v")));

            List<CompletableFuture<Long>> puts = new ArrayList<>();
            for (int index = 0; index < 2000; index++) {
                puts.add(async.put(days, bytes("key" + index), bytes("value" + index)));
            }
            puts.forEach(CompletableFuture::join);
            List<CompletableFuture<byte[]>> gets = new ArrayList<>();
            for (int index = 0; index < 2000; index++) {
                gets.add(async.get(days, bytes("key" + index)));
            }
            for (int index = 0; index < 2000; index++) {
                assertEquals("value" + index, text(gets.get(index).join()));
            }
            assertEquals(2000, async.scan(days, Scan.all()).join().size());
            assertEquals(10, async.scan(days, Scan.prefix(bytes("key1")).limit(10)).join().size());
            // What depends on a future may submit more.
            assertEquals(
                    "value7",
                    text(
                            async.get(days, bytes("none"))
                                    .thenCompose(none -> async.get(days, bytes("key7")))
                                    .join()));
        }
    }

    @Test
    public void whatIsUnderWayWhenTheClientIsClosedFails() {
        try (Server server = new Server()) {
            Options options = new Options().address(server.tcp()).timeout(Duration.ofSeconds(60));
            Kelix kelix = Kelix.connect(options);
            Async async = kelix.async();
            Table table;
            try (Session session = kelix.session()) {
                table = session.create("t", TableKind.HASH);
            }
            server.standStill();
            List<CompletableFuture<Long>> puts = new ArrayList<>();
            for (int index = 0; index < 100; index++) {
                puts.add(async.put(table, bytes("k" + index), bytes("v")));
            }
            async.close();
            puts.forEach(put -> assertEquals(ErrorKind.INVALID_ARGUMENT, error(put).kind()));
            assertEquals(ErrorKind.INVALID_ARGUMENT, error(async.get(table, bytes("k"))).kind());
            server.goOn();
            kelix.close();
            fails(ErrorKind.INVALID_ARGUMENT, kelix::async);
        }
    }

    @Test
    public void aServerThatIsKilledFailsWhatIsUnderWayAndTheNextOneServes()
            throws InterruptedException {
        try (Server server = new Server();
                Kelix kelix = Kelix.connect(server.address())) {
            Async async = kelix.async();
            Table table;
            try (Session session = kelix.session()) {
                table = session.create("t", TableKind.HASH);
            }
            server.standStill();
            CompletableFuture<Long> put = async.put(table, bytes("k"), bytes("v"));
            server.kill();
            KelixException error = error(put);
            assertTrue(error.toString(), error instanceof UnavailableException);
            server.start();
            try (Session session = kelix.session()) {
                Support.until(
                        "the next server serves",
                        () -> {
                            try {
                                Table next = session.create("t", TableKind.HASH);
                                return async.put(next, bytes("k"), bytes("v")).join() != 0;
                            } catch (CompletionException | UnavailableException failed) {
                                return false;
                            }
                        });
            }
        }
    }
}
