/**
 * The client of Kelix, a store in memory whose reads bypass the server.
 *
 * <p>{@link org.kelix.Kelix#connect()} finds the server. {@link org.kelix.Kelix#session()} takes a
 * session out of a pool, for one thread at a time, and all operations are the session's. {@link
 * org.kelix.Kelix#asMap} makes a {@link java.util.concurrent.ConcurrentMap} of a table, and {@link
 * org.kelix.Kelix#async()} has futures. All three serve any number of threads.
 *
 * <p>Everything that fails throws {@link org.kelix.KelixException}, which is unchecked and tells
 * the kind of the error, whether to try again, and whether the store was changed. What is absent is
 * no error, but null, -1 or false.
 *
 * <p>Arrays that are passed are read during the call only, and arrays that are returned are the
 * caller's.
 */
package org.kelix;
