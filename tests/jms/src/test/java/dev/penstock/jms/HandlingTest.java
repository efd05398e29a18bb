package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.penstock.jms.OwnBroker.Ending;
import jakarta.jms.Destination;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.IntPredicate;
import org.apache.qpid.jms.message.JmsMessage;
import org.apache.qpid.jms.provider.amqp.message.AmqpJmsMessageFacade;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/**
 * PEEK, PURGE, MOVE and REDRIVE as a JMS application asks for them, with kill -9 while the broker is at it: a message may
 * be in both places then, never in none (docs/reference/management.md).
 */
@DisplayName("Operations on messages, from JMS")
class HandlingTest extends OwnBrokerCase {
    private static final int MANY = 4000;
    private static final int REJECTED = 2;

    private Session session;
    private Queue work;

    private void declare() throws Exception {
        startBroker(false, "authentication: {users: {guest: guest}}\n" + Management.EVERYTHING);
        broker.declare("""
                - {type: penstock.queue, name: work, body: {delivery: {deadLetter: dead}}}
                - {type: penstock.queue, name: elsewhere, body: {}}
                """);
        session = own();
        work = session.createQueue("work");
    }

    /** Sends "0" to "MANY - 1" with a number each, in one transaction. */
    private void sendMany(Destination destination) throws JMSException {
        Session transacted = open(failover()).createSession(Session.SESSION_TRANSACTED);
        try (MessageProducer producer = transacted.createProducer(destination)) {
            for (int number = 0; number < MANY; number++) {
                TextMessage message = transacted.createTextMessage(Integer.toString(number));
                message.setIntProperty("number", number);
                producer.send(message);
            }
        }
        transacted.commit();
    }

    /** How often each text is in these queues; takes them all. */
    private Map<String, Integer> taken(String... queues) throws JMSException {
        Map<String, Integer> counts = new HashMap<>();
        for (String queue : queues) {
            try (MessageConsumer consumer = session.createConsumer(session.createQueue(queue))) {
                rest(consumer).forEach(text -> counts.merge(text, 1, Integer::sum));
            }
        }
        return counts;
    }

    /** Each number that is meant is there, at most `most` times, and no other. */
    private static void assertThere(IntPredicate meant, int most, Map<String, Integer> counts) {
        for (int number = 0; number < MANY; number++) {
            int count = counts.getOrDefault(Integer.toString(number), 0);
            int text = number;
            assertTrue(meant.test(number) ? count >= 1 && count <= most : count == 0, () -> text + " is there " + count + " times");
        }
    }

    /** Kills the broker once the first messages have come to a queue, and starts it again. */
    private void killOnceAny(String queue) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(SOON);
        Session watching = own();
        while (first(watching, queue) == null) {
            assertTrue(System.nanoTime() < deadline, "nothing comes to " + queue);
        }
        broker.restart(Ending.KILLED);
    }

    private static Message first(Session session, String queue) throws JMSException {
        try (var browser = session.createBrowser(session.createQueue(queue))) {
            var messages = browser.getEnumeration();
            return messages.hasMoreElements() ? (Message) messages.nextElement() : null;
        }
    }

    private Management management() throws JMSException {
        return new Management(open(failover()));
    }

    @Test
    @DisplayName("Killed while it moves: nothing is lost, at worst a message is in both places, and moving the rest works")
    void movedAndKilled() throws Exception {
        declare();
        sendMany(work);
        management().send("MOVE", "penstock.queue", "work", Map.of("destination", "elsewhere"));
        killOnceAny("elsewhere");
        Management.Answer answer = management().ofQueue("MOVE", "work", Map.of("destination", "elsewhere"));
        assertEquals(200, answer.status());
        assertEquals(0, answer.number("left"));
        assertEquals(Map.of(), taken("work"));
        assertThere(number -> true, 2, taken("elsewhere"));
    }

    @Test
    @DisplayName("Killed while it redrives dead letters: the same")
    void redrivenAndKilled() throws Exception {
        declare();
        sendMany(work);
        Session rejecting = open(failover()).createSession(Session.CLIENT_ACKNOWLEDGE);
        try (MessageConsumer consumer = rejecting.createConsumer(work)) {
            for (Message message = consumer.receiveNoWait(); message != null; message = consumer.receiveNoWait()) {
                message.setIntProperty("JMS_AMQP_ACK_TYPE", REJECTED);
                message.acknowledge();
            }
        }
        management().send("REDRIVE", "penstock.queue", "dead", Map.of());
        killOnceAny("work");
        Management.Answer answer = management().ofQueue("REDRIVE", "dead", Map.of());
        assertEquals(200, answer.status());
        assertEquals(0, answer.number("left"));
        assertEquals(Map.of(), taken("dead"));
        assertThere(number -> true, 2, taken("work"));
    }

    @Test
    @DisplayName("Killed while it purges what a selector names: nothing else is gone, and purging the rest works")
    void purgedAndKilled() throws Exception {
        declare();
        sendMany(work);
        Map<String, String> odd = Map.of("selector", "number < 3900 AND number <> 0");
        management().send("PURGE", "penstock.queue", "work", odd);
        broker.restart(Ending.KILLED);
        assertEquals("0", first(session, "work").getBody(String.class));
        assertEquals(200, management().ofQueue("PURGE", "work", odd).status());
        assertThere(number -> number == 0 || number >= 3900, 1, taken("work"));
    }

    @Test
    @DisplayName("What was answered stays so over a kill -9: moved, redriven and purged, each once")
    void answered() throws Exception {
        declare();
        publish(session, work, "1", "2", "3");
        assertEquals(1, management().ofQueue("MOVE", "work", Map.of("destination", "elsewhere", "count", 1)).number("messages"));
        assertEquals(1, management().ofQueue("PURGE", "work", Map.of("count", 1)).number("messages"));
        broker.restart(Ending.KILLED);
        assertEquals(List.of("1"), browsed(session, session.createQueue("elsewhere")));
        assertEquals(List.of("3"), browsed(session, work));
    }

    @Test
    @DisplayName("A dead letter tells why: PEEK shows it, and the client's own API for annotations; after a restart too")
    void cause() throws Exception {
        declare();
        publish(session, work, "poison");
        Session rejecting = open(failover()).createSession(Session.CLIENT_ACKNOWLEDGE);
        Message poison = next(rejecting.createConsumer(work));
        poison.setIntProperty("JMS_AMQP_ACK_TYPE", REJECTED);
        poison.acknowledge();
        killOnceAny("dead");
        Map<?, ?> annotations = (Map<?, ?>) management().ofQueue("PEEK", "dead", Map.of()).maps("messages").get(0).get("annotations");
        assertEquals("rejected", String.valueOf(annotations.get("x-opt-death-reason")));
        AmqpJmsMessageFacade dead = (AmqpJmsMessageFacade)
                ((JmsMessage) next(session.createConsumer(session.createQueue("dead")))).getFacade();
        assertEquals("rejected", dead.getTracingAnnotation("x-opt-death-reason"));
        assertEquals("work", dead.getTracingAnnotation("x-opt-ORIG-QUEUE"));
        assertEquals(0, dead.getDeliveryCount() - 1);
    }
}
