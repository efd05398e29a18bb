package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.Connection;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.Queue;
import jakarta.jms.ResourceAllocationException;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.nio.file.Files;
import java.util.List;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** What a broker is configured to bound: overflow of queues, auto-creation, connections, sizes; the same after a restart. */
@DisplayName("Limits and policies over restarts")
class LimitsTest extends OwnBrokerCase {
    private static final String LIMIT = "amqp:resource-limit-exceeded";

    @Test
    @DisplayName("Queues of two messages: DropOldest and DropNewest, and the same after a restart")
    void overflow() throws Exception {
        startBroker(false, ONLY_WHAT_IS_DECLARED);
        broker.declare("""
                - {type: penstock.queue, name: last, body: {limits: {maxMessages: 2, overflow: DropOldest}}}
                - {type: penstock.queue, name: first, body: {limits: {maxMessages: 2, overflow: DropNewest}}}
                """);
        Session session = own();
        Queue last = session.createQueue("last");
        Queue first = session.createQueue("first");
        publish(session, last, "1", "2", "3", "4");
        publish(session, first, "1", "2", "3", "4");
        broker.restart(Ending.KILLED);
        assertEquals(List.of("3", "4"), browsed(session, last));
        assertEquals(List.of("1", "2"), browsed(session, first));
        publish(session, last, "5");
        publish(session, first, "5");
        assertEquals(List.of("4", "5"), browsed(session, last));
        assertEquals(List.of("1", "2"), browsed(session, first));
    }

    @Test
    @DisplayName("Auto-creation of certain names: those are made, up to the limit, and stay over a restart; others are not there")
    void autoCreation() throws Exception {
        startBroker(false, ONLY_WHAT_IS_DECLARED + """
                autoCreate:
                  queues: {names: ["app.*"], limit: 2}
                  topics: {names: ["news"]}
                """);
        Session session = own();
        Topic news = session.createTopic("news/eu.fr");
        session.createSharedDurableConsumer(session.createTopic("news/eu.#"), "s").close();
        for (int round = 0; round < 2; round++) {
            publish(session, session.createQueue("app.one"), "1");
            publish(session, session.createQueue("app.two"), "2");
            publish(session, news, "n");
            assertRefused(ResourceAllocationException.class, LIMIT, () -> session.createProducer(session.createQueue("app.three")));
            assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> session.createConsumer(session.createQueue("other")));
            assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> session.createConsumer(session.createTopic("other")));
            if (round == 0) {
                broker.restart(Ending.KILLED);
            }
        }
        assertEquals(List.of("1", "1"), browsed(session, session.createQueue("app.one")));
        assertEquals(List.of("n", "n"), rest(session.createSharedDurableConsumer(session.createTopic("news/eu.#"), "s")));
    }

    @Test
    @DisplayName("One connection too many of a user is a ResourceAllocationException, and one that closes makes room")
    void connections() throws Exception {
        startBroker(true, "limits: {connectionsPerUser: 2}\n");
        open(direct("guest", "guest"));
        Connection second = open(direct("guest", "guest"));
        JMSException refusal = assertRefused(ResourceAllocationException.class, LIMIT, () -> open(direct("guest", "guest")));
        assertTrue(refusal.getMessage().contains("connectionsPerUser"), refusal.getMessage());
        second.close();
        assertEquals("1", sentAndReceived(open(direct("guest", "guest"))));
    }

    private static String sentAndReceived(Connection connection) throws JMSException {
        Session session = session(connection);
        publish(session, session.createQueue("work"), "1");
        return text(session.createConsumer(session.createQueue("work")));
    }

    @Test
    @DisplayName("Each listener has its longest message: what one refuses the other takes")
    void messageSizePerListener() throws Exception {
        int small = OwnBroker.freePort();
        startBroker(true, "listeners: [{name: small, address: '127.0.0.1:" + small + "', maxMessageBytes: 10000}]\n");
        Session narrow = session(open(new JmsConnectionFactory("guest", "guest", "amqp://127.0.0.1:" + small)));
        Queue work = narrow.createQueue("work");
        String large = "x".repeat(20_000);
        assertThrows(JMSException.class, () -> publish(narrow, work, large));
        publish(narrow, work, "small");
        publish(own(), work, large);
        assertEquals(List.of("small", large), texts(narrow.createConsumer(work), 2));
    }

    @Test
    @DisplayName("A broker tells where else to go: when it is killed, its clients are served there")
    void announcedServers() throws Exception {
        try (OwnBroker second = new OwnBroker(Files.createDirectories(folder.resolve("second/data")))) {
            second.start();
            String[] address = second.address().split(":");
            startBroker(true, "announce: {failoverServers: [{hostname: %s, port: %s, scheme: amqp}]}%n".formatted(address[0], address[1]));
            Session session = own();
            Queue work = session.createQueue("work");
            publish(session, work, "to the first");
            broker.kill();
            publish(session, work, "to the second");
            Session there = session(open(new JmsConnectionFactory("guest", "guest", "amqp://" + second.address())));
            assertEquals(List.of("to the second"), browsed(there, work));
        }
    }
}
