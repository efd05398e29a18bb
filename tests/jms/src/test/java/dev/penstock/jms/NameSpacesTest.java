package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

/** The five spaces that JMS 2.0 has for subscription names (QPIDJMS-220): one name in each means five subscriptions. */
@DisplayName("One name in the five spaces")
class NameSpacesTest extends JmsTestCase {
    private Topic topic;
    private Session scoped;
    private Session global;
    private MessageConsumer durableWithClientId;
    private MessageConsumer volatileWithClientId;
    private MessageConsumer durableGlobal;
    private MessageConsumer volatileGlobal;
    private MessageConsumer unshared;

    @BeforeEach
    void subscribeInEachSpace() throws JMSException {
        topic = topic("orders");
        Connection app = connectAs(name("app"));
        scoped = session(app);
        global = session();
        durableWithClientId = scoped.createSharedDurableConsumer(topic, name("s"));
        volatileWithClientId = scoped.createSharedConsumer(topic, name("s"));
        durableGlobal = global.createSharedDurableConsumer(topic, name("s"));
        volatileGlobal = global.createSharedConsumer(topic, name("s"));
        unshared = global.createConsumer(topic);
    }

    @Test
    @DisplayName("Each of the five gets the message once")
    void eachGetsItOnce() throws JMSException {
        send(topic, "order");
        for (MessageConsumer consumer :
                List.of(durableWithClientId, volatileWithClientId, durableGlobal, volatileGlobal, unshared)) {
            assertEquals(List.of("order"), texts(consumer, 1));
            assertNothing(consumer);
        }
    }

    @Test
    @DisplayName("Ending one leaves the four others")
    void endingOneLeavesTheOthers() throws JMSException {
        durableGlobal.close();
        global.unsubscribe(name("s"));
        volatileWithClientId.close();
        send(topic, "order");
        for (MessageConsumer consumer : List.of(durableWithClientId, volatileGlobal, unshared)) {
            assertEquals(List.of("order"), texts(consumer, 1));
        }
        assertNothing(global.createSharedDurableConsumer(topic, name("s")));
        assertNothing(scoped.createSharedConsumer(topic, name("s")));
    }

    @Test
    @DisplayName("Each may have its own selector")
    void eachHasItsOwnSelector() throws JMSException {
        durableGlobal.close();
        MessageConsumer eu = global.createSharedDurableConsumer(topic, name("s"), "region = 'eu'");
        sendFrom(topic, "us", "us");
        sendFrom(topic, "eu", "eu");
        assertEquals(List.of("eu"), texts(eu, 1));
        assertEquals(List.of("us", "eu"), texts(durableWithClientId, 2));
        assertEquals(List.of("us", "eu"), texts(volatileGlobal, 2));
    }
}
