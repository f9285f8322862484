package org.kelix.test;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertTrue;
import static org.junit.Assume.assumeTrue;
import static org.kelix.test.Support.bytes;
import static org.kelix.test.Support.fails;
import static org.kelix.test.Support.text;
import static org.kelix.test.Support.until;

import org.junit.After;
import org.junit.Before;
import org.junit.Test;
import org.kelix.Effect;
import org.kelix.ErrorKind;
import org.kelix.Kelix;
import org.kelix.KelixException;
import org.kelix.Options;
import org.kelix.Session;
import org.kelix.Table;
import org.kelix.TableKind;
import org.kelix.UnavailableException;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Several threads, and servers that stand still or go. */
public class ThreadsTest {
    private static final byte[] K = bytes("k");
    private Server server;
    private Kelix kelix;
    private Session session;
    private Table table;

    @Before
    public void serve() {
        server = new Server();
        // A server that stands still keeps a call inside for as long as a test needs.
        kelix =
                Kelix.connect(
                        new Options().address(server.address()).timeout(Duration.ofSeconds(60)));
        session = kelix.session();
        table = session.create("t", TableKind.HASH);
        session.put(table, K, bytes("v"));
    }

    @After
    public void end() {
        server.goOn();
        session.close();
        kelix.close();
        server.close();
    }

    /** Waits until a call of another thread is inside the session. */
    private void untilBusy() throws InterruptedException {
        until(
                "a call is inside",
                () -> {
                    try {
                        // A call that never waits for the server.
                        session.fabric();
                        return false;
                    } catch (KelixException error) {
                        assertEquals(ErrorKind.BUSY, error.kind());
                        assertTrue(error.retry());
                        return true;
                    }
                });
    }

    /** A call that a server which stands still keeps inside, by another thread. */
    private Support.Other inside(Callable<?> call) throws InterruptedException {
        Support.Other other =
                new Support.Other(
                        () -> {
                            while (true) {
                                try {
                                    return call.call();
                                } catch (KelixException error) {
                                    // The thread that looks whether this one is inside was there first.
                                    if (error.kind() != ErrorKind.BUSY) {
                                        throw error;
                                    }
                                }
                            }
                        });
        untilBusy();
        return other;
    }

    @Test
    public void aSecondThreadIsRefused() throws InterruptedException {
        server.standStill();
        Support.Other other = inside(() -> session.put(table, K, bytes("w")));
        fails(ErrorKind.BUSY, () -> session.put(table, K, bytes("x")));
        fails(ErrorKind.BUSY, session::fabric);
        server.goOn();
        assertNull(other.end());
        assertEquals("w", text(session.get(table, K)));
    }

    @Test
    public void closingWaitsForTheCallThatIsInside() throws InterruptedException {
        server.standStill();
        Support.Other writer = inside(() -> session.put(table, K, bytes("w")));
        Support.Other closer =
                new Support.Other(
                        () -> {
                            session.close();
                            return null;
                        });
        until(
                "whoever calls now is told that the session was closed",
                () -> {
                    KelixException error =
                            org.junit.Assert.assertThrows(
                                    KelixException.class, () -> session.get(table, K));
                    return error.kind() == ErrorKind.INVALID_ARGUMENT;
                });
        assertTrue(closer.isAlive() && writer.isAlive());
        server.goOn();
        assertNull(writer.end());
        assertNull(closer.end());
    }

    @Test
    public void closingWhileAnotherThreadReadsIsAnExceptionThere() throws InterruptedException {
        for (boolean isClient : new boolean[] {false, true}) {
            for (int turn = 0; turn < 50; turn++) {
                Kelix own = Kelix.connect(server.address());
                Session read = own.session();
                Table its = read.table("t");
                CountDownLatch reads = new CountDownLatch(100);
                Support.Other reader =
                        new Support.Other(
                                () -> {
                                    while (true) {
                                        assertEquals("v", text(read.get(its, K)));
                                        reads.countDown();
                                    }
                                });
                reads.await();
                if (isClient) {
                    own.close();
                } else {
                    read.close();
                }
                KelixException error = (KelixException) reader.end();
                assertEquals(ErrorKind.INVALID_ARGUMENT, error.kind());
                own.close();
            }
        }
    }

    @Test
    public void aServerThatIsKilledInABatchIsAnException() throws InterruptedException {
        List<byte[]> keys = new ArrayList<>();
        for (int index = 0; index < 10_000; index++) {
            keys.add(bytes("key" + index));
        }
        server.standStill();
        Support.Other other = inside(() -> session.multiPut(table, keys, keys));
        server.kill();
        Throwable error = other.end();
        assertTrue(String.valueOf(error), error instanceof UnavailableException);
        assertEquals(Effect.UNKNOWN, ((KelixException) error).effect());
        // The last state can be read, or the server is known to be gone: nothing else.
        try {
            assertEquals("v", text(session.get(table, K)));
        } catch (UnavailableException gone) {
            assertTrue(gone.retry());
        }
        server.start();
        until(
                "the session goes over to the next server",
                () -> {
                    try {
                        Table next = session.create("t", TableKind.HASH);
                        session.put(next, K, bytes("next"));
                        return text(session.get(next, K)).equals("next");
                    } catch (KelixException failed) {
                        assertTrue(
                                failed.toString(),
                                failed.retry() || failed.kind() == ErrorKind.SUPERSEDED);
                        return false;
                    }
                });
    }

    @Test
    public void thePoolGivesSessionsAgainAndHasALimit() throws InterruptedException {
        try (Kelix own = Kelix.connect(new Options().address(server.address()).sessions(2))) {
            Session first = own.session();
            Session second = own.session();
            Support.Other third =
                    new Support.Other(
                            () -> {
                                try (Session waiting = own.session()) {
                                    return waiting.get(waiting.table("t"), K);
                                }
                            });
            until("the third one waits", () -> third.getState() == Thread.State.TIMED_WAITING);
            long messages = first.cost().messages();
            first.close();
            assertNull(third.end());
            // It is the same session of the library's, with the cost that it had.
            try (Session again = own.session()) {
                assertTrue(again.cost().messages() >= messages);
            }
            second.close();
            Thread.currentThread().interrupt();
            Session one = own.session();
            Session two = own.session();
            fails(ErrorKind.BUSY, own::session);
            assertTrue(Thread.interrupted());
            one.close();
            two.close();
        }
    }

    @Test
    public void manyThreadsWithSessionsOfThePool() throws Exception {
        many(Executors.newFixedThreadPool(8));
    }

    @Test
    public void tenThousandVirtualThreads() throws Exception {
        assumeTrue(Runtime.version().feature() >= 21);
        many(
                (ExecutorService)
                        Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null));
    }

    private void many(ExecutorService threads) throws Exception {
        List<Future<?>> all = new ArrayList<>();
        for (int index = 0; index < 10_000; index++) {
            byte[] key = bytes("key" + index % 100);
            byte[] value = bytes("value" + index % 100);
            all.add(
                    threads.submit(
                            () -> {
                                try (Session own = kelix.session()) {
                                    own.put(table, key, value);
                                    Thread.yield();
                                    assertEquals(text(value), text(own.get(table, key)));
                                }
                            }));
        }
        for (Future<?> each : all) {
            each.get();
        }
        threads.shutdown();
    }
}
