package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import jakarta.jms.Connection;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.List;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/**
 * {@code Session.unsubscribe}: "It is erroneous for a client to delete a durable subscription while there is an active consumer",
 * and an InvalidDestinationException "if an invalid subscription name is specified".
 */
@DisplayName("Unsubscribe")
class UnsubscribeTest extends JmsTestCase {
    @Test
    @DisplayName("It ends the subscription: what is sent then is lost, and a new one starts empty")
    void endsTheSubscription() throws JMSException {
        Topic topic = topic("orders");
        Session session = session();
        session.createSharedDurableConsumer(topic, name("s")).close();
        send(topic, "backlog");
        session.unsubscribe(name("s"));
        send(topic, "nobody's");
        assertNothing(session.createSharedDurableConsumer(topic, name("s")));
    }

    @Test
    @DisplayName("While in use on this connection it is refused, and the consumer goes on")
    void inUseHere() throws JMSException {
        Topic topic = topic("orders");
        Session session = session();
        MessageConsumer consumer = session.createSharedDurableConsumer(topic, name("s"));
        assertThrows(JMSException.class, () -> session.unsubscribe(name("s")));
        send(topic, "1");
        assertEquals("1", text(consumer));
    }

    @Test
    @DisplayName("While in use on another connection the broker refuses; consumer and backlog stay, and later it works")
    void inUseOnAnotherConnection() throws JMSException {
        Topic topic = topic("orders");
        Connection other = connect("jms.prefetchPolicy.all=1");
        MessageConsumer consumer = session(other).createSharedDurableConsumer(topic, name("s"));
        send(topic, "1", "2", "3");
        Session session = session();
        assertRefused(LOCKED, () -> session.unsubscribe(name("s")));
        assertRefused(LOCKED, () -> session.unsubscribe(name("s")));
        assertEquals(List.of("1", "2", "3"), texts(consumer, 3));
        send(topic, "4");
        assertEquals("4", text(consumer));
        other.close();
        session.unsubscribe(name("s"));
    }

    @Test
    @DisplayName("An unknown name is not found, with and without ClientID")
    void unknownName() throws JMSException {
        Session global = session();
        assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> global.unsubscribe(name("nothing")));
        Session scoped = session(connectAs(name("app")));
        assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> scoped.unsubscribe(name("nothing")));
    }

    @Test
    @DisplayName("A second time it is not found, on this connection and on others that had used it")
    void twice() throws JMSException {
        Topic topic = topic("orders");
        Session one = session();
        Session two = session();
        one.createSharedDurableConsumer(topic, name("s")).close();
        two.createSharedDurableConsumer(topic, name("s")).close();
        one.unsubscribe(name("s"));
        assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> one.unsubscribe(name("s")));
        assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> two.unsubscribe(name("s")));
    }

    @Test
    @DisplayName("A global one can be ended from a connection that never used it")
    void fromAnotherConnection() throws JMSException {
        Topic topic = topic("orders");
        session().createSharedDurableConsumer(topic, name("s")).close();
        session().unsubscribe(name("s"));
        assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> session().unsubscribe(name("s")));
    }

    @Test
    @DisplayName("It works for not-shared durable and for shared ones of a ClientID, on its next connection")
    void ofAClientId() throws JMSException {
        Topic topic = topic("orders");
        Connection first = connectAs(name("app"));
        session(first).createDurableConsumer(topic, name("alone"));
        session(first).createSharedDurableConsumer(topic, name("together"));
        first.close();
        Session session = session(connectAs(name("app")));
        for (String subscription : List.of(name("alone"), name("together"))) {
            session.unsubscribe(subscription);
            assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> session.unsubscribe(subscription));
        }
    }

    @Test
    @DisplayName("It reaches only the own space: neither another ClientID's nor the global one of the same name")
    void onlyInTheOwnSpace() throws JMSException {
        Topic topic = topic("orders");
        session().createSharedDurableConsumer(topic, name("s")).close();
        Session app = session(connectAs(name("app")));
        app.createSharedDurableConsumer(topic, name("s")).close();
        Session other = session(connectAs(name("other")));
        assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> other.unsubscribe(name("s")));
        send(topic, "order");

        app.unsubscribe(name("s"));
        assertEquals("order", text(session().createSharedDurableConsumer(topic, name("s"))));
    }

    @Test
    @DisplayName("A volatile one has no name that could be unsubscribed")
    void volatileIsNotFound() throws JMSException {
        Topic topic = topic("orders");
        MessageConsumer consumer = session().createSharedConsumer(topic, name("s"));
        assertRefused(InvalidDestinationException.class, NOT_FOUND, () -> session().unsubscribe(name("s")));
        send(topic, "1");
        assertEquals("1", text(consumer));
    }
}
