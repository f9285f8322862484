/** A program that uses the client. */
module shop {
    requires kelix.client;
}
