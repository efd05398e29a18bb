package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** {@code Session.createDurableConsumer} and plain {@code createConsumer}: one consumer per subscription. */
@DisplayName("Not shared")
class UnsharedTest extends JmsTestCase {
    @Test
    @DisplayName("A durable one keeps its backlog from close to the next connection with the ClientID")
    void durableKeepsItsBacklog() throws JMSException {
        Topic topic = topic("orders");
        Connection first = connectAs(name("app"));
        MessageConsumer consumer = session(first).createDurableConsumer(topic, name("d"));
        send(topic, "1", "2");
        assertEquals("1", text(consumer));
        first.close();
        send(topic, "3");
        MessageConsumer again = session(connectAs(name("app"))).createDurableConsumer(topic, name("d"));
        assertEquals(List.of("2", "3"), texts(again, 2));
    }

    @Test
    @DisplayName("A durable one needs a ClientID")
    void durableNeedsClientId() throws JMSException {
        Topic topic = topic("orders");
        Session session = session();
        assertThrows(JMSException.class, () -> session.createDurableConsumer(topic, name("d")));
    }

    @Test
    @DisplayName("A second consumer of a durable one is refused while the first is active, which stays")
    void durableTakesOneConsumer() throws JMSException {
        Topic topic = topic("orders");
        Connection connection = connectAs(name("app"));
        MessageConsumer first = session(connection).createDurableConsumer(topic, name("d"));
        assertThrows(JMSException.class, () -> session(connection).createDurableConsumer(topic, name("d")));
        send(topic, "1");
        assertEquals("1", text(first));
    }

    @Test
    @DisplayName("The same name under another ClientID is another subscription")
    void durableIsScopedToTheClientId() throws JMSException {
        Topic topic = topic("orders");
        MessageConsumer one = session(connectAs(name("one"))).createDurableConsumer(topic, name("d"));
        MessageConsumer two = session(connectAs(name("two"))).createDurableConsumer(topic, name("d"));
        send(topic, "order");
        assertEquals("order", text(one));
        assertEquals("order", text(two));
    }

    @Test
    @DisplayName("No-local on a durable one leaves out what its own ClientID sends, decided when it is sent")
    void durableNoLocal() throws JMSException {
        Topic topic = topic("orders");
        Connection connection = connectAs(name("app"));
        Session session = session(connection);
        MessageConsumer consumer = session.createDurableConsumer(topic, name("d"), null, true);
        MessageProducer own = session.createProducer(topic);
        own.send(session.createTextMessage("own"));
        send(topic, "of others");
        assertEquals("of others", text(consumer));
        assertNothing(consumer);
    }

    @Test
    @DisplayName("A volatile one gets every message once, from its creation until its close")
    void volatileEndsWithItsConsumer() throws JMSException {
        Topic topic = topic("orders");
        Session session = session();
        MessageConsumer one = session.createConsumer(topic);
        MessageConsumer two = session.createConsumer(topic);
        send(topic, "1");
        assertEquals("1", text(one));
        assertEquals("1", text(two));
        one.close();
        send(topic, "2");
        assertEquals("2", text(two));
    }

    @Test
    @DisplayName("No-local on a volatile one leaves out what its own connection sends")
    void volatileNoLocal() throws JMSException {
        Topic topic = topic("orders");
        Session session = session();
        MessageConsumer consumer = session.createConsumer(topic, null, true);
        session.createProducer(topic).send(session.createTextMessage("own"));
        send(topic, "of others");
        assertEquals("of others", text(consumer));
        assertNothing(consumer);
    }
}
