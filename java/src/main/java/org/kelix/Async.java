package org.kelix;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Function;

/**
 * Operations that end later, for all threads: a thread of their own submits what has come together,
 * and waits for answers. {@link Kelix#async()} makes it.
 *
 * <p>Futures are completed by that thread, so what depends on them (but for methods whose names end
 * with Async) must neither wait nor take long. They fail with {@link KelixException}. A future that
 * is cancelled has no effect on the operation. In shared memory {@link Session#get} takes less time
 * than to hand it over. The thread, and with it the client, stays until either is closed.
 */
public final class Async implements AutoCloseable {
    private static final int POLL_MOST = 256;

    /** Submits an operation with a number. */
    private interface Submit {
        void with(Session session, long number);
    }

    private record Request(Submit submit, CompletableFuture<Completion> future) {}

    private final Kelix kelix;
    private final Queue<Request> requests = new ConcurrentLinkedQueue<>();
    private final Map<Long, CompletableFuture<Completion>> pending = new HashMap<>();
    private final Thread thread;

    /**
     * Of whoever wakes the thread up. The descriptor is closed under it, so that no other one is
     * written to.
     */
    private final ReentrantLock waking = new ReentrantLock();

    private final Block wakingBlock = new Block(0);

    /** Of the thread while nothing is under way. */
    private final Block idleBlock = new Block(0);

    private int wake = -1;
    private volatile boolean isAsleep;
    private volatile boolean isClosed;

    /** Null after an error that ended it, until the next request. */
    private Session session;

    private long submitted;

    Async(Kelix kelix) {
        this.kelix = kelix;
        session = kelix.session();
        wakingBlock.must(Op.NEW_WAKE);
        wake = (int) wakingBlock.out(0);
        thread = new Thread(this::run, "kelix-async");
        thread.setDaemon(true);
        thread.start();
    }

    /**
     * Gets a value.
     *
     * @param table the table
     * @param key the key
     * @return the value, or null: there is no such key
     */
    public CompletableFuture<byte[]> get(Table table, byte[] key) {
        byte[] copied = Block.need(key, "key").clone();
        Block.need(table, "table");
        return submit(
                (session, number) -> session.submitGet(table, copied, number), Completion::value);
    }

    /**
     * Gets an item with its attributes, links, version, flags and end.
     *
     * @param table the table
     * @param key the key
     * @return the item, or null: there is no such key
     */
    public CompletableFuture<Item> getItem(Table table, byte[] key) {
        byte[] copied = Block.need(key, "key").clone();
        Block.need(table, "table");
        return submit((session, number) -> session.submitGet(table, copied, number), Async::item);
    }

    /**
     * Puts a plain value.
     *
     * @param table the table
     * @param key the key
     * @param value the value
     * @return the key's new version
     */
    public CompletableFuture<Long> put(Table table, byte[] key, byte[] value) {
        byte[] copied = Block.need(key, "key").clone();
        byte[] bytes = Block.need(value, "value").clone();
        Block.need(table, "table");
        return submit(
                (session, number) -> session.submitPut(table, copied, bytes, number),
                Completion::version);
    }

    /**
     * Puts an item with attributes and links.
     *
     * @param table the table
     * @param key the key
     * @param item the item, which is not to be changed meanwhile
     * @return the key's new version
     */
    public CompletableFuture<Long> putItem(Table table, byte[] key, NewItem item) {
        byte[] copied = Block.need(key, "key").clone();
        Block.need(item, "item");
        Block.need(table, "table");
        return submit(
                (session, number) -> session.submitPutItem(table, copied, item, number),
                Completion::version);
    }

    /**
     * Deletes a key.
     *
     * @param table the table
     * @param key the key
     * @return whether it was there
     */
    public CompletableFuture<Boolean> delete(Table table, byte[] key) {
        byte[] copied = Block.need(key, "key").clone();
        Block.need(table, "table");
        return submit(
                (session, number) -> session.submitDelete(table, copied, number), Completion::done);
    }

    /**
     * Puts a plain value if the key's version is still the expected one.
     *
     * @param table the table
     * @param key the key
     * @param expected the version; {@link Session#ABSENT}: if there is no such key
     * @param value the value
     * @return what came of it
     */
    public CompletableFuture<Compared> compareAndSet(
            Table table, byte[] key, long expected, byte[] value) {
        byte[] copied = Block.need(key, "key").clone();
        byte[] bytes = Block.need(value, "value").clone();
        Block.need(table, "table");
        return submit(
                (session, number) ->
                        session.submitCompareAndSet(table, copied, expected, bytes, number),
                completion -> new Compared(completion.done(), completion.version()));
    }

    /**
     * Deletes a key if its version is still the expected one.
     *
     * @param table the table
     * @param key the key
     * @param expected the version
     * @return what came of it
     */
    public CompletableFuture<Compared> compareAndDelete(Table table, byte[] key, long expected) {
        byte[] copied = Block.need(key, "key").clone();
        Block.need(table, "table");
        return submit(
                (session, number) ->
                        session.submitCompareAndDelete(table, copied, expected, number),
                completion -> new Compared(completion.done(), completion.version()));
    }

    /**
     * Goes along an item's first link under a name.
     *
     * @param item the item
     * @param name the name
     * @return the target, or null: it does not exist (any more)
     */
    public CompletableFuture<Item> follow(Item item, String name) {
        Block.need(item, "item");
        Block.name(name, "name of a link");
        return submit((session, number) -> session.submitFollow(item, name, number), Async::item);
    }

    /**
     * Scans a range of a table.
     *
     * @param table the table
     * @param scan which keys
     * @return the items, with attributes and links
     */
    public CompletableFuture<List<Item>> scan(Table table, Scan scan) {
        Block.need(scan, "scan");
        Block.need(table, "table");
        List<Item> items = new ArrayList<>();
        return submit((session, number) -> session.submitScan(table, scan, number))
                .thenCompose(completion -> pages(completion, items));
    }

    private CompletableFuture<List<Item>> pages(Completion completion, List<Item> items) {
        items.addAll(completion.items());
        if (completion.rest() == null) {
            return CompletableFuture.completedFuture(items);
        }
        return submit((session, number) -> session.submitPage(completion.rest(), number))
                .thenCompose(next -> pages(next, items));
    }

    private static Item item(Completion completion) {
        return completion.items().isEmpty() ? null : completion.items().get(0);
    }

    private <T> CompletableFuture<T> submit(Submit submit, Function<Completion, T> result) {
        return submit(submit).thenApply(result);
    }

    private CompletableFuture<Completion> submit(Submit submit) {
        CompletableFuture<Completion> future = new CompletableFuture<>();
        requests.add(new Request(submit, future));
        if (isAsleep) {
            wake();
        }
        // The thread looks at requests for the last time when the flag is set, perhaps before this
        // request came.
        if (isClosed) {
            failRequests(closed());
        }
        return future;
    }

    private void wake() {
        waking.lock();
        try {
            if (wake >= 0) {
                wakingBlock.set(1, wake).call(Op.WAKE);
            }
        } finally {
            waking.unlock();
        }
    }

    private void run() {
        while (!isClosed) {
            try {
                step();
            } catch (Throwable error) {
                fail(error);
            }
        }
        fail(closed());
        failRequests(closed());
        waking.lock();
        try {
            wakingBlock.set(1, wake).call(Op.CLOSE_WAKE);
            wake = -1;
        } finally {
            waking.unlock();
        }
    }

    private void step() {
        if (session == null) {
            if (requests.isEmpty()) {
                sleep(null, false);
                return;
            }
            try {
                session = kelix.session();
            } catch (KelixException error) {
                failRequests(error);
                return;
            }
        }
        for (Request request = requests.poll(); request != null; request = requests.poll()) {
            try {
                long number = submitted++;
                request.submit.with(session, number);
                pending.put(number, request.future);
            } catch (Throwable error) {
                request.future.completeExceptionally(error);
            }
        }
        Core core = session.enter();
        List<Completion> ended;
        try {
            ended = Completions.poll(session, core, POLL_MOST);
            if (ended == null || ended.isEmpty()) {
                sleep(core, ended != null);
                return;
            }
        } finally {
            session.leave();
        }
        ended.forEach(this::complete);
    }

    /** Sleeps until an answer or a request comes. */
    private void sleep(Core core, boolean isUnderWay) {
        isAsleep = true;
        try {
            // A request that came before the line above woke nobody.
            if (!requests.isEmpty() || isClosed) {
                return;
            }
            if (isUnderWay) {
                Completions.await(core, wake, Long.MAX_VALUE);
            } else {
                idleBlock.set(1, -1).set(2, wake).set(3, -1).must(Op.WAIT);
            }
        } finally {
            isAsleep = false;
        }
    }

    private void complete(Completion completion) {
        CompletableFuture<Completion> future = pending.remove(completion.number());
        if (future == null) {
            return;
        }
        if (completion.error() != null) {
            future.completeExceptionally(completion.error());
        } else {
            future.complete(completion);
        }
    }

    /**
     * The session told an error that is of no operation: all end with it, and the next request
     * takes another one.
     */
    private void fail(Throwable error) {
        List<CompletableFuture<Completion>> failed = new ArrayList<>(pending.values());
        pending.clear();
        if (session != null) {
            session.handle.isSpent = true;
            session.close();
            session = null;
        }
        failed.forEach(future -> future.completeExceptionally(error));
    }

    private void failRequests(KelixException error) {
        for (Request request = requests.poll(); request != null; request = requests.poll()) {
            request.future.completeExceptionally(error);
        }
    }

    private static KelixException closed() {
        return KelixException.of(
                ErrorKind.INVALID_ARGUMENT,
                "the client was closed",
                false,
                Effect.UNKNOWN,
                "async",
                0);
    }

    /**
     * Ends it: what is under way fails with an effect that is unknown. Closing the client does the
     * same.
     */
    @Override
    public void close() {
        isClosed = true;
        wake();
        boolean wasInterrupted = false;
        while (thread.isAlive() && thread != Thread.currentThread()) {
            try {
                thread.join();
            } catch (InterruptedException error) {
                wasInterrupted = true;
            }
        }
        if (wasInterrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
