/** The client of Kelix, a store in memory whose reads bypass the server. */
module kelix.client {
    exports org.kelix;
}
