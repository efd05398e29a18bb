package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** Queues: each message to one consumer, selectors that leave the rest to others, browsers that take nothing. */
@DisplayName("Queues")
class QueueTest extends JmsTestCase {
    private Queue queue(String stem) throws JMSException {
        return publishing().createQueue(name(stem));
    }

    private void put(Queue queue, String... texts) throws JMSException {
        try (MessageProducer producer = publishing().createProducer(queue)) {
            for (String text : texts) {
                TextMessage message = publishing().createTextMessage(text);
                message.setStringProperty("region", text.substring(0, 2));
                producer.send(message);
            }
        }
    }

    private List<String> browsed(Queue queue, String selector) throws JMSException {
        return OwnBrokerCase.browsed(publishing(), queue, selector);
    }

    @Test
    @DisplayName("Each message goes to one of several consumers, and none gets them all")
    void severalConsumers() throws JMSException {
        Queue queue = queue("work");
        List<MessageConsumer> consumers = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            Session session = session(connect("jms.prefetchPolicy.all=1"));
            consumers.add(session.createConsumer(queue));
            flush(session);
        }
        put(queue, "eu1", "eu2", "eu3");
        Set<String> received = new TreeSet<>();
        for (MessageConsumer consumer : consumers) {
            received.add(text(consumer));
        }
        assertEquals(Set.of("eu1", "eu2", "eu3"), received);
        for (MessageConsumer consumer : consumers) {
            assertNothing(consumer);
        }
    }

    @Test
    @DisplayName("A consumer with a selector takes what it selects, in order, and leaves the rest to others")
    void selectorLeavesTheRest() throws JMSException {
        Queue queue = queue("work");
        put(queue, "us1", "eu1", "us2", "eu2", "us3");
        MessageConsumer eu = session().createConsumer(queue, "region = 'eu'");
        assertEquals(List.of("eu1", "eu2"), texts(eu, 2));
        assertNothing(eu);
        MessageConsumer all = session().createConsumer(queue);
        assertEquals(List.of("us1", "us2", "us3"), texts(all, 3));
        put(queue, "eu3");
        assertEquals(Set.of("eu3"), Set.copyOf(rest(eu, all)));
    }

    private static List<String> rest(MessageConsumer one, MessageConsumer two) throws JMSException {
        List<String> texts = new ArrayList<>(rest(one));
        texts.addAll(rest(two));
        return texts;
    }

    @Test
    @DisplayName("Selectors on numbers, strings, presence and JMS headers, all on one queue")
    void selectorLanguage() throws JMSException {
        Queue queue = queue("work");
        try (MessageProducer producer = publishing().createProducer(queue)) {
            TextMessage message = publishing().createTextMessage("one");
            message.setIntProperty("amount", 1500);
            message.setDoubleProperty("weight", 2.5);
            message.setStringProperty("name", "50%_off");
            message.setBooleanProperty("urgent", true);
            message.setJMSType("invoice");
            message.setJMSCorrelationID("c-1");
            producer.send(message, jakarta.jms.DeliveryMode.PERSISTENT, 7, 0);
        }
        for (String selector : List.of(
                "amount > 1000 AND weight * 2 = 5",
                "amount % 400 = 300", // not of JMS, but the client's own check lets it pass
                "amount BETWEEN 1000 AND 2000 AND NOT urgent = FALSE",
                "name LIKE '50!%!_%' ESCAPE '!'",
                "name IN ('x', '50%_off') AND absent IS NULL",
                "JMSType = 'invoice' AND JMSPriority = 7 AND JMSDeliveryMode = 'PERSISTENT'",
                "JMSCorrelationID = 'c-1' AND (absent > 3 OR urgent)")) {
            assertEquals(List.of("one"), browsed(queue, selector), selector);
        }
        for (String selector : List.of("absent = 3", "NOT (absent = 3)", "name % 2 = 0", "name > 3", "amount = '1500'", "JMSType LIKE 'x%'")) {
            assertEquals(List.of(), browsed(queue, selector), selector);
        }
    }

    @Test
    @DisplayName("A browser shows what waits, in order, ends, and takes nothing; with a selector only what it selects")
    void browser() throws JMSException {
        Queue queue = queue("work");
        assertEquals(List.of(), browsed(queue, null));
        put(queue, "us1", "eu1", "us2");
        assertEquals(List.of("us1", "eu1", "us2"), browsed(queue, null));
        assertEquals(List.of("eu1"), browsed(queue, "region = 'eu'"));
        assertEquals(List.of("us1", "eu1", "us2"), texts(session().createConsumer(queue), 3));
        assertEquals(List.of(), browsed(queue, null));
    }

    @Test
    @DisplayName("A browser ends although messages keep coming, and is seen by nobody")
    void browserIsASnapshot() throws JMSException {
        Queue queue = queue("work");
        put(queue, "eu0", "eu1");
        List<String> seen = new ArrayList<>();
        try (QueueBrowser browser = session().createBrowser(queue)) {
            for (var messages = browser.getEnumeration(); messages.hasMoreElements(); ) {
                seen.add(((Message) messages.nextElement()).getBody(String.class));
                put(queue, "eu" + (seen.size() + 1));
                assertTrue(seen.size() < 50, "it never ends");
            }
        }
        assertEquals(List.of("eu0", "eu1"), seen.subList(0, 2));
        Message first = next(session().createConsumer(queue));
        assertEquals("eu0", first.getBody(String.class));
        assertEquals(1, first.getIntProperty("JMSXDeliveryCount"), "browsing counts no delivery");
    }

    @Test
    @DisplayName("A browser of many messages sees each once, past its credit")
    void browserOfMany() throws JMSException {
        Queue queue = queue("work");
        List<String> texts = new ArrayList<>();
        for (int i = 0; i < 500; i++) {
            texts.add(String.format("eu%03d", i));
        }
        put(queue, texts.toArray(String[]::new));
        Session few = session(connect("jms.prefetchPolicy.queueBrowserPrefetch=10"));
        assertEquals(texts, OwnBrokerCase.browsed(few, queue, null));
    }

    @Test
    @DisplayName("Closing a consumer returns what it had not acknowledged, in its place")
    void closedConsumer() throws JMSException {
        Queue queue = queue("work");
        put(queue, "eu1", "eu2", "eu3");
        Connection connection = connect();
        MessageConsumer first = connection.createSession(Session.CLIENT_ACKNOWLEDGE).createConsumer(queue);
        assertEquals("eu1", text(first));
        connection.close();
        assertEquals(List.of("eu1", "eu2", "eu3"), texts(session().createConsumer(queue), 3));
    }

    @Test
    @DisplayName("Ten priorities: higher first, in order of sending within one; the default is 4")
    void priorities() throws JMSException {
        Queue queue = queue("work");
        try (MessageProducer producer = publishing().createProducer(queue)) {
            for (int priority : new int[] {4, 0, 9, 4, 1, 8, 5, 2, 7, 3, 6, 9}) {
                producer.setPriority(priority);
                producer.send(publishing().createTextMessage("p" + priority));
            }
        }
        MessageConsumer consumer = session().createConsumer(queue);
        Message first = next(consumer);
        assertEquals(9, first.getJMSPriority());
        assertEquals(
                List.of("p9", "p8", "p7", "p6", "p5", "p4", "p4", "p3", "p2", "p1", "p0"), texts(consumer, 11));
    }

    @Test
    @DisplayName("Priorities hold on a subscription's backlog too")
    void prioritiesOfASubscription() throws JMSException {
        var topic = topic("orders");
        Session session = session();
        session.createSharedDurableConsumer(topic, name("s")).close();
        try (MessageProducer producer = publishing().createProducer(topic)) {
            for (int priority : new int[] {1, 9, 4}) {
                producer.setPriority(priority);
                producer.send(publishing().createTextMessage("p" + priority));
            }
        }
        assertEquals(List.of("p9", "p4", "p1"), texts(session.createSharedDurableConsumer(topic, name("s")), 3));
    }

    private void group(Queue queue, String... texts) throws JMSException {
        try (MessageProducer producer = publishing().createProducer(queue)) {
            for (String text : texts) {
                TextMessage message = publishing().createTextMessage(text);
                message.setStringProperty("JMSXGroupID", text.substring(0, 1));
                producer.send(message);
            }
        }
    }

    @Test
    @DisplayName("A group has one consumer, groups are spread, and a group passes on when its consumer leaves")
    void groups() throws JMSException {
        Queue queue = queue("work");
        Connection one = connect("jms.prefetchPolicy.all=10");
        Connection two = connect("jms.prefetchPolicy.all=10");
        MessageConsumer first = session(one).createConsumer(queue);
        MessageConsumer second = session(two).createConsumer(queue);
        flush(session(one));
        flush(session(two));
        group(queue, "a1", "b1", "a2", "b2", "a3", "b3");
        String head = text(first).substring(0, 1);
        String other = head.equals("a") ? "b" : "a";
        assertEquals(List.of(head + 2, head + 3), texts(first, 2));
        assertEquals(List.of(other + 1, other + 2, other + 3), texts(second, 3));

        one.close();
        group(queue, head + 4, other + 4);
        assertEquals(Set.of(head + 4, other + 4), Set.copyOf(texts(second, 2)));
    }
}
