package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Transactions over a restart of the broker, and over the end of what they touch. */
@DisplayName("Transactions and restarts")
class TransactionRestartTest extends OwnBrokerCase {
    private Session transacted() throws JMSException {
        return open(failover()).createSession(Session.SESSION_TRANSACTED);
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("A restart before commit rolls back, and the client says so")
    void beforeCommit(Ending ending) throws Exception {
        startBroker();
        Session session = transacted();
        Queue in = session.createQueue("in");
        Queue out = session.createQueue("out");
        publish(own(), in, "order");
        MessageConsumer consumer = session.createConsumer(in);
        assertEquals("order", text(consumer));
        publish(session, out, "never");

        broker.restart(ending);
        assertNotCommitted(session::commit);
        committed(session::commit, () -> {
            Message again = next(consumer);
            assertEquals("order", again.getBody(String.class));
            assertTrue(again.getJMSRedelivered());
            publish(session, out, "done");
        });
        MessageConsumer results = own().createConsumer(out);
        assertEquals("done", text(results));
        assertNothing(results);
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("What was committed before a restart is there after it: received is gone, sent waits")
    void afterCommit(Ending ending) throws Exception {
        startBroker();
        Session session = transacted();
        Queue in = session.createQueue("in");
        Topic topic = session.createTopic("orders");
        own().createSharedDurableConsumer(topic, "s").close();
        publish(own(), in, "1", "2");
        MessageConsumer consumer = session.createConsumer(in);
        publish(session, topic, text(consumer) + " done", text(consumer) + " done");
        session.commit();

        broker.restart(ending);
        MessageConsumer results = own().createSharedDurableConsumer(topic, "s");
        assertEquals(List.of("1 done", "2 done"), texts(results, 2));
        assertNothing(results);
        assertNothing(consumer);
    }

    @ParameterizedTest
    @EnumSource(Ending.class)
    @DisplayName("A transaction larger than what is written at once is there as a whole")
    void large(Ending ending) throws Exception {
        startBroker(true, "maxMessageBytes: 2097152\n"); // and log segments of the usual size
        Session session = transacted();
        Queue out = session.createQueue("out");
        String[] texts = new String[100];
        for (int number = 0; number < texts.length; number++) {
            texts[number] = number + "x".repeat(100_000);
        }
        publish(session, out, texts);
        session.commit();
        broker.restart(ending);
        assertEquals(List.of(texts), texts(own().createConsumer(out), texts.length));
    }

    @Test
    @DisplayName("If a subscription is ended meanwhile its part is void, and the rest is committed")
    void subscriptionEnded() throws Exception {
        startBroker(false, ONLY_WHAT_IS_DECLARED);
        broker.declare("""
                - {type: penstock.exchange, name: orders, body: {exchangeType: Topic}}
                - {type: penstock.queue, name: out, body: {}}
                - {type: penstock.subscription, body: {subscriptionName: s, exchange: orders}}
                """);
        Session session = transacted();
        Topic topic = session.createTopic("orders");
        MessageConsumer consumer = session.createSharedDurableConsumer(topic, "s");
        publish(own(), topic, "order");
        publish(session, session.createQueue("out"), text(consumer) + " done");
        broker.declare("- {operation: DELETE, type: penstock.subscription, name: " + queueName() + ", body: {ifUnused: false}}");
        session.commit();
        assertEquals("order done", text(own().createConsumer(session.createQueue("out"))));
    }

    /** The queue of the global, durable subscription {@code s}, as docs/reference/rules.md encodes it. */
    private static String queueName() {
        return "psub:durable:global:s";
    }
}
