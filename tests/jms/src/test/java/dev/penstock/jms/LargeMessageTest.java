package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.BytesMessage;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Messages of 50 MiB: many frames, larger than a log segment, never whole in the broker's memory. */
@DisplayName("Large messages")
class LargeMessageTest extends OwnBrokerCase {
    private static final int SIZE = 50 * 1024 * 1024;
    private static final String SETTINGS = "log: {segmentBytes: 33554432}\nmaxMessageBytes: 67108864\n";

    private static byte[] body(long seed) {
        byte[] bytes = new byte[SIZE];
        new Random(seed).nextBytes(bytes);
        return bytes;
    }

    private static void send(Session session, Destination destination, byte[] body) throws JMSException {
        BytesMessage message = session.createBytesMessage();
        message.setStringProperty("region", "eu");
        message.writeBytes(body);
        try (MessageProducer producer = session.createProducer(destination)) {
            producer.send(message);
        }
    }

    private static void assertReceived(byte[] expected, MessageConsumer consumer) throws JMSException {
        var message = consumer.receive(SOON);
        assertArrayEquals(expected, message == null ? null : message.getBody(byte[].class));
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("On a queue, and on a subscription with a selector, over a restart")
    void survives(Ending ending) throws Exception {
        startBroker(true, SETTINGS);
        Session session = own();
        Queue queue = session.createQueue("work");
        Topic topic = session.createTopic("orders");
        session.createSharedDurableConsumer(topic, "s", "region = 'eu'").close();
        byte[] first = body(1);
        send(session, queue, first);
        send(session, topic, first);
        publish(session, queue, "small");
        broker.restart(ending);
        MessageConsumer worker = session.createConsumer(queue);
        assertReceived(first, worker);
        assertEquals("small", text(worker));
        assertReceived(first, session.createSharedDurableConsumer(topic, "s", "region = 'eu'"));
    }

    @Test
    @DisplayName("In a transaction: nothing before the commit")
    void transacted() throws Exception {
        startBroker(true, SETTINGS + "transactions: {maxBytes: 16777216}\n");
        Session session = open(failover()).createSession(Session.SESSION_TRANSACTED);
        Queue queue = session.createQueue("work");
        byte[] part = new byte[8 * 1024 * 1024];
        send(session, queue, part);
        MessageConsumer consumer = own().createConsumer(queue);
        assertNothing(consumer);
        session.commit();
        assertReceived(part, consumer);
    }

    @Test
    @DisplayName("Over the limit it is refused, saying so, and the connection goes on")
    void tooLarge() throws Exception {
        startBroker();
        Session session = own();
        Queue queue = session.createQueue("work");
        assertThrows(JMSException.class, () -> send(session, queue, new byte[3 * 1024 * 1024]));
        publish(session, queue, "small");
        assertEquals("small", text(session.createConsumer(queue)));
    }

    @Test
    @DisplayName("Sent and received in transactions over restarts: committed it is there as a whole, not committed it never was, or comes again")
    void transactedOverRestarts() throws Exception {
        startBroker(true, SETTINGS + "transactions: {maxBytes: 16777216}\n");
        Session session = open(failover()).createSession(Session.SESSION_TRANSACTED);
        Queue queue = session.createQueue("work");
        Queue done = session.createQueue("done");
        byte[] part = Arrays.copyOf(body(2), 6 * 1024 * 1024);
        send(session, queue, new byte[5 * 1024 * 1024]);
        broker.restart(Ending.KILLED);
        assertNotCommitted(session::commit);

        committed(session::commit, () -> send(session, queue, part));
        broker.restart(Ending.TERMINATED);
        MessageConsumer consumer = session.createConsumer(queue);
        assertReceived(part, consumer);
        send(session, done, part);
        broker.restart(Ending.KILLED);
        assertNotCommitted(session::commit);
        committed(session::commit, () -> {
            assertReceived(part, consumer);
            send(session, done, part);
        });
        broker.restart(Ending.TERMINATED);
        assertNothing(consumer);
        MessageConsumer results = own().createConsumer(done);
        assertReceived(part, results);
        assertNothing(results);
    }
}
