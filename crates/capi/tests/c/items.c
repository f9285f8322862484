/* Items: attributes by index and by name, links, and where they lead. The university of the KELI paper. */

#include "check.h"

static kelix_item_builder *new_builder(void) {
    kelix_item_builder *builder = NULL;
    OK(NULL, kelix_item_builder_new(&builder));
    return builder;
}

/* Attributes by names that were made, which are whatever the same names' texts are. */
static void names(const kelix_item *student) {
    const char *texts[] = {"name", "", "supervisor", "nothing", "name"};
    kelix_name *name = NULL;
    size_t at;
    for (at = 0; at < 5; at++) {
        kelix_bytes wanted, found;
        const kelix_link *links = NULL;
        size_t wanted_count = 0, count = 0;
        int code = kelix_item_bytes(student, text(texts[at]), &wanted), twice;
        OK(NULL, kelix_name_new(text(texts[at]), &name));
        for (twice = 0; twice < 2; twice++) {
            RETURNS(NULL, code, kelix_item_bytes_of(student, name, &found));
            CHECK(found.bytes == wanted.bytes && memcmp(found.data, wanted.data, found.bytes) == 0);
            OK(NULL, kelix_item_links(student, text(texts[at]), &links, &wanted_count));
            OK(NULL, kelix_item_links_of(student, name, &links, &count));
            CHECK(count == wanted_count && count == (at == 2 ? 2u : 0u));
        }
        kelix_name_free(name);
    }
    REFUSED(NULL, KELIX_INVALID_ARGUMENT, kelix_name_new(bytes("\xff", 1), &name));
    REFUSED(NULL, KELIX_INVALID_ARGUMENT, kelix_item_bytes_of(student, NULL, NULL));
    kelix_name_free(NULL);
}

/* Along several links at once. */
static void paths(kelix_session *session, const kelix_item *student) {
    kelix_bytes path[3];
    kelix_item *end = new_item();
    path[0] = text("supervisor");
    path[1] = text("department");
    path[2] = text("nothing");
    OK(session, kelix_follow_path(session, student, path, 2, end));
    CHECK(is(about(end).key, "depcs"));
    OK(session, kelix_follow_path(session, student, path, 0, end));
    CHECK(is(about(end).key, "stu001"));
    REFUSED(session, KELIX_NO_SUCH_ATTRIBUTE, kelix_follow_path(session, student, path, 3, end));
    REFUSED(session, KELIX_BUSY, kelix_follow_path(session, end, path, 1, end));
    REFUSED(session, KELIX_INVALID_ARGUMENT, kelix_follow_path(session, student, NULL, 1, end));
    kelix_item_free(end);
}

int main(void) {
    kelix_client *client = client_at(variable("KELIX_TEST_DIRECTORY"));
    kelix_session *session = session_of(client);
    kelix_table people = table_of(session, KELIX_HASH, "people");
    kelix_table departments = table_of(session, KELIX_HASH, "departments"), table;
    kelix_item_builder *builder = new_builder();
    kelix_item *student = new_item(), *other = new_item();
    const kelix_attribute *attributes = NULL;
    const kelix_link *links = NULL;
    kelix_bytes found;
    kelix_write write;
    kelix_cost before, after;
    uint64_t version = 0, told = 0;
    size_t count = 0;

    OK(NULL, kelix_item_builder_bytes(builder, text("website"), text("www.cs.ac.co")));
    OK(session, kelix_put_item(session, departments, text("depcs"), builder, NULL, NULL));
    OK(NULL, kelix_item_builder_clear(builder));
    OK(NULL, kelix_item_builder_bytes(builder, text("name"), text("UVT")));
    OK(NULL, kelix_item_builder_link(builder, text("department"), departments, text("depcs"), bytes(NULL, 0)));
    OK(session, kelix_put_item(session, people, text("prof001"), builder, NULL, NULL));
    OK(NULL, kelix_item_builder_clear(builder));
    OK(NULL, kelix_item_builder_bytes(builder, text("name"), text("XYZ")));
    OK(NULL, kelix_item_builder_bytes(builder, text(""), text("a student")));
    OK(NULL, kelix_item_builder_link(builder, text("supervisor"), people, text("prof001"), text("since 2024")));
    OK(NULL, kelix_item_builder_link(builder, text("supervisor"), people, text("prof002"), bytes(NULL, 0)));
    OK(NULL, kelix_item_builder_flags(builder, 7));
    OK(NULL, kelix_item_builder_ends_in(builder, 3600000000000u));
    OK(session, kelix_put_item(session, people, text("stu001"), builder, NULL, &version));

    /* Nothing was got yet. */
    REFUSED(NULL, KELIX_INVALID_ARGUMENT, kelix_item_attributes(student, &attributes, &count));
    OK(session, kelix_get_item(session, people, text("stu001"), student));
    CHECK(about(student).version == version && about(student).flags == 7 && about(student).ends_ns != 0);
    CHECK(is(about(student).value, "a student"));

    OK(NULL, kelix_item_attributes(student, &attributes, &count));
    CHECK(count == 4);
    CHECK(is(attributes[0].name, "name") && is(attributes[0].bytes, "XYZ"));
    CHECK(attributes[0].kind == KELIX_BYTES && attributes[0].key.bytes == 0);
    CHECK(is(attributes[1].name, "") && is(attributes[1].bytes, "a student"));
    CHECK(is(attributes[2].name, "supervisor") && attributes[2].kind == KELIX_LINK);
    CHECK(is(attributes[2].key, "prof001") && is(attributes[2].bytes, "since 2024"));
    CHECK(attributes[2].table_id == kelix_table_id(people));
    CHECK(is(attributes[3].key, "prof002") && attributes[3].bytes.bytes == 0);

    OK(NULL, kelix_item_bytes(student, text("name"), &found));
    CHECK(is(found, "XYZ"));
    OK(NULL, kelix_item_bytes(student, text(""), &found));
    CHECK(is(found, "a student"));
    RETURNS(NULL, KELIX_ABSENT, kelix_item_bytes(student, text("tel"), &found));
    CHECK(found.bytes == 0);
    OK(NULL, kelix_item_links(student, text("supervisor"), &links, &count));
    CHECK(count == 2 && is(links[0].key, "prof001") && is(links[1].key, "prof002"));
    OK(session, kelix_table_by_id(session, links[0].table_id, &table));
    OK(session, kelix_get_item(session, table, links[0].key, other));
    CHECK(is(about(other).key, "prof001"));
    OK(NULL, kelix_item_links(student, text("nothing"), &links, &count));
    CHECK(count == 0);

    /* From there on each link is one remote read, and the server does nothing. */
    OK(session, kelix_follow(session, student, text("supervisor"), other));
    CHECK(is(about(other).key, "prof001") && is(about(student).key, "stu001"));
    before.size = after.size = sizeof before;
    OK(session, kelix_session_cost(session, &before));
    OK(session, kelix_follow(session, other, text("department"), other));
    OK(session, kelix_session_cost(session, &after));
    CHECK(after.reads - before.reads == 1 && after.messages == before.messages);
    CHECK(is(about(other).key, "depcs"));
    OK(NULL, kelix_item_bytes(other, text("website"), &found));
    CHECK(is(found, "www.cs.ac.co"));
    REFUSED(session, KELIX_NO_SUCH_ATTRIBUTE, kelix_follow(session, student, text("mentor"), other));
    names(student);
    paths(session, student);
    RETURNS(session, KELIX_ABSENT, kelix_table_name(session, 60000, &found));
    OK(session, kelix_table_name(session, about(student).table_id, &found));
    CHECK(is(found, "people"));

    /* A plain item has one attribute, without a name. */
    put(session, people, "plain", "value");
    OK(session, kelix_get_item(session, people, text("plain"), other));
    OK(NULL, kelix_item_attributes(other, &attributes, &count));
    CHECK(count == 1 && is(attributes[0].name, "") && is(attributes[0].bytes, "value"));

    /* Items are compared and set, too. */
    memset(&write, 0, sizeof write);
    write.size = sizeof write;
    write.expect = KELIX_EXPECT_ABSENT;
    RETURNS(session, KELIX_MISMATCH, kelix_put_item(session, people, text("stu001"), builder, &write, &told));
    CHECK(told == version);
    write.expect = KELIX_EXPECT_VERSION;
    write.expected = version;
    OK(session, kelix_put_item(session, people, text("stu001"), builder, &write, &told));
    CHECK(told != version);
    write.flags = 1;
    REFUSED(session, KELIX_INVALID_ARGUMENT,
            kelix_put_item(session, people, text("stu001"), builder, &write, NULL));

    /* A link whose target is not there leads nowhere, and the item stays. */
    OK(NULL, kelix_item_builder_clear(builder));
    OK(NULL, kelix_item_builder_link(builder, text("to"), people, text("nobody"), bytes(NULL, 0)));
    OK(session, kelix_put_item(session, people, text("lost"), builder, NULL, NULL));
    OK(session, kelix_get_item(session, people, text("lost"), other));
    RETURNS(session, KELIX_ABSENT, kelix_follow(session, other, text("to"), student));
    CHECK(is(about(student).key, "stu001"));

    /* An item outlives the session that got it. */
    kelix_session_free(session);
    CHECK(is(about(student).key, "stu001"));
    kelix_item_free(student);
    kelix_item_free(other);
    kelix_item_builder_free(builder);
    kelix_client_free(client);
    return 0;
}
