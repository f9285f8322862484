package org.kelix;

import java.lang.ref.Cleaner;
import java.util.List;

/**
 * A generation of a dataset that is being built. Nobody sees it until {@link #finish()}. To close
 * it before that gives it up, so an exception in a try statement leaves nothing behind. It is of
 * the session that began it, which can do anything else between, and is given up with that one.
 * Another session that builds the dataset right after may be told to try again.
 */
public final class Build implements AutoCloseable {
    private final Session session;
    private final List<String> names;
    private final Handle handle;
    private final Cleaner.Cleanable cleanable;

    Build(Session session, long address, List<String> names) {
        this.session = session;
        this.names = names;
        handle = session.handle.child(Handle.Kind.BUILD, address);
        cleanable = handle.with(this);
    }

    private int index(String name) {
        int index = names.indexOf(Block.need(name, "name of a table"));
        if (index < 0) {
            throw KelixException.of(
                    ErrorKind.NO_SUCH_TABLE,
                    "the build has no table " + name,
                    false,
                    Effect.NO,
                    "build",
                    0);
        }
        return index;
    }

    private interface Call<T> {
        T run(Core core);
    }

    /** Calls with the build's address in word 1, and the index of one of its tables in word 2. */
    private <T> T with(int index, Call<T> call) {
        Core core = session.enter();
        try {
            long taken = handle.take();
            try {
                core.block.set(1, taken).set(2, index);
                return call.run(core);
            } finally {
                handle.put(taken);
            }
        } finally {
            session.leave();
        }
    }

    /**
     * One of its tables: to name it in links, and to read it before others can.
     *
     * @param name its name
     * @return the table
     */
    public Table table(String name) {
        return with(
                index(name),
                core -> {
                    core.block.must(Op.BUILD_TABLE);
                    return new Table(core.block, name);
                });
    }

    /**
     * Puts a plain value. Items are sent together, so an error may be told by a later call.
     *
     * @param table the name of one of its tables
     * @param key the key, which comes once in a generation
     * @param value the value
     */
    public void put(String table, byte[] key, byte[] value) {
        Block.need(key, "key");
        Block.need(value, "value");
        with(
                index(table),
                core -> {
                    Block block = core.block.begin((long) key.length + value.length, 2);
                    return block.bytes(4, key).bytes(6, value).must(Op.BUILD_PUT);
                });
    }

    /**
     * Puts an item with attributes and links, whose targets may come later.
     *
     * @param table the name of one of its tables
     * @param key the key, which comes once in a generation
     * @param item the item
     */
    public void put(String table, byte[] key, NewItem item) {
        Block.need(key, "key");
        Block.need(item, "item");
        with(
                index(table),
                core -> {
                    long builder = core.spare(Handle.Kind.BUILDER);
                    Block block = core.block.begin(key.length + item.bytes(), 1 + item.strings());
                    item.write(block.bytes(4, key).set(6, builder), 7);
                    return block.must(Op.BUILD_PUT_ITEM);
                });
    }

    /**
     * Puts the generation in force, at once for all readers, when all of its items are there. The
     * build is over then, also after an error.
     *
     * @return what was built
     */
    public Built finish() {
        try {
            return with(
                    0,
                    core -> {
                        Block block = core.block;
                        // Also where it fails the library takes the build as over.
                        session.handle.isOver(handle);
                        block.must(Op.FINISH_BUILD);
                        return new Built(
                                block.out(0),
                                block.out(1),
                                block.out(2),
                                block.out(3),
                                block.out(4));
                    });
        } finally {
            freeIfOver();
        }
    }

    /** A call that was refused, since another thread was in the session, has ended nothing. */
    private void freeIfOver() {
        if (!session.handle.isBuilding(handle)) {
            cleanable.clean();
        }
    }

    /** Gives the build up, if it is not over: it leaves nothing behind. */
    public void abandon() {
        close();
    }

    /** Gives the build up, if it is not over: it leaves nothing behind. */
    @Override
    public void close() {
        if (handle.isClosed() || session.handle.isClosed()) {
            return;
        }
        try {
            with(
                    0,
                    core -> {
                        session.handle.isOver(handle);
                        return core.block.must(Op.ABANDON_BUILD);
                    });
        } finally {
            freeIfOver();
        }
    }
}
