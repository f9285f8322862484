package org.kelix;

import java.nio.file.Path;
import java.time.Duration;

/**
 * How to connect. What is not set has its default. Options can be used for any number of clients.
 */
public final class Options implements Cloneable {
    /** Ways to the server. */
    public enum Fabric {
        /** Whatever leads to the server, the faster first. */
        ANY,
        /** Shared memory. */
        SHM,
        /** RDMA. */
        VERBS,
        /** TCP. */
        TCP
    }

    String address = "";
    String namespace = "";
    String token = "";
    String certificates = "";
    String certificate = "";
    String key = "";
    Fabric fabric = Fabric.ANY;
    boolean durable;
    boolean privateCaches;
    long timeout;
    long retryFor;
    boolean ownWrites = true;
    boolean strict;
    long maxLag;
    int sessions = 64;

    /** All defaults. */
    public Options() {}

    /**
     * The server's run directory, or HOST:PORT. Default: the run directory that servers use when
     * none is named ($KELIX_DIR, else $XDG_RUNTIME_DIR/kelix, else /tmp/kelix-UID).
     *
     * @param address the directory, or host and port
     * @return this
     */
    public Options address(String address) {
        this.address = Block.need(address, "address");
        return this;
    }

    /**
     * The namespace. Default: the one without a name.
     *
     * @param namespace its name
     * @return this
     */
    public Options namespace(String namespace) {
        this.namespace = Block.need(namespace, "namespace");
        return this;
    }

    /**
     * A word that the server knows, over TCP.
     *
     * @param token the word
     * @return this
     */
    public Options token(String token) {
        this.token = Block.need(token, "token");
        return this;
    }

    /**
     * Speaks TLS over TCP, with servers whose certificates these vouch for.
     *
     * @param certificates a file with certificates, in PEM
     * @return this
     */
    public Options tls(Path certificates) {
        this.certificates = Block.need(certificates, "file of certificates").toString();
        return this;
    }

    /**
     * A certificate of this client's own, for servers that ask for one.
     *
     * @param certificate a file with the certificate, in PEM
     * @param key a file with its key, in PEM
     * @return this
     */
    public Options certificate(Path certificate, Path key) {
        this.certificate = Block.need(certificate, "file of the certificate").toString();
        this.key = Block.need(key, "file of the key").toString();
        return this;
    }

    /**
     * The way to insist on. Sessions fail to open where it cannot be had.
     *
     * @param fabric the way
     * @return this
     */
    public Options fabric(Fabric fabric) {
        this.fabric = Block.need(fabric, "fabric");
        return this;
    }

    /**
     * Whether writes are on the server's disk before they return. The server has to write a log.
     *
     * @param durable whether they are
     * @return this
     */
    public Options durable(boolean durable) {
        this.durable = durable;
        return this;
    }

    /**
     * Whether cached pointers and copies of models are each session's own, and not shared with the
     * user's other processes on this host.
     *
     * @param privateCaches whether they are
     * @return this
     */
    public Options privateCaches(boolean privateCaches) {
        this.privateCaches = privateCaches;
        return this;
    }

    /**
     * How long a request may take, if nothing of it comes meanwhile, before it fails. Default: 900
     * ms.
     *
     * @param time more than nothing
     * @return this
     */
    public Options timeout(Duration time) {
        timeout = Times.positive(time, "timeout");
        return this;
    }

    /**
     * For how much longer to try to connect again where the server is gone. Default: not at all, and at the
     * primary of a cluster 10 seconds.
     *
     * @param time more than nothing
     * @return this
     */
    public Options retryFor(Duration time) {
        retryFor = Times.positive(time, "time to try again");
        return this;
    }

    /**
     * On a mirror: whether what a session has written or seen at the primary is read there until
     * the mirror has it, so that the session finds its own writes and goes back to nothing older.
     * Default: it is. Sessions come out of a pool, and one that is taken out of it knows nothing of
     * what another one has written.
     *
     * @param ownWrites whether it is; otherwise the mirror is read, whatever that has
     * @return this
     */
    public Options ownWrites(boolean ownWrites) {
        this.ownWrites = ownWrites;
        return this;
    }

    /**
     * On a mirror: how old what is read may be. A read that would show what is older throws {@link
     * UnavailableException}. Default: as old as the mirror lets it be.
     *
     * @param time more than nothing
     * @return this
     */
    public Options maxLag(Duration time) {
        maxLag = Times.positive(time, "lag");
        return this;
    }

    /**
     * Whether on a mirror all reads go to the primary, too, and at a cluster on several hosts are answered by
     * the word of its register, so that they believe no clock.
     *
     * @param strict whether they do
     * @return this
     */
    public Options strict(boolean strict) {
        this.strict = strict;
        return this;
    }

    /**
     * How many sessions may be in use at once. Each costs the server a thread and some memory, so
     * whoever wants one more waits for one that is given back, 30 s at most. Default: 64.
     *
     * @param most one at least
     * @return this
     */
    public Options sessions(int most) {
        if (most < 1) {
            throw KelixException.invalid("at most " + most + " sessions: one is the least");
        }
        sessions = most;
        return this;
    }

    /** A copy, which stays as it is. */
    @Override
    public Options clone() {
        try {
            return (Options) super.clone();
        } catch (CloneNotSupportedException error) {
            throw new AssertionError(error);
        }
    }
}
