package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A broker that dies and comes back with its data folder, under clients that use failover. */
@DisplayName("Restart of the broker")
class FailoverTest extends JmsTestCase {
    @TempDir
    Path folder;

    private OwnBroker broker;

    @BeforeEach
    void startBroker() throws IOException {
        broker = new OwnBroker(Files.createDirectory(folder.resolve("data")));
        broker.start();
    }

    @AfterEach
    void stopBroker() {
        broker.close();
    }

    private JmsConnectionFactory failover() {
        return new JmsConnectionFactory(
                "guest",
                "guest",
                "failover:(amqp://" + broker.address() + ")?failover.reconnectDelay=50&failover.useReconnectBackOff=false");
    }

    private void publish(Session session, Topic topic, String... texts) throws JMSException {
        MessageProducer producer = session.createProducer(topic);
        for (String text : texts) {
            producer.send(session.createTextMessage(text));
        }
    }

    @Test
    @DisplayName("kill -9: the backlog of a durable subscription is there, and the same consumer goes on")
    void backlogSurvivesKill() throws Exception {
        Session publishing = session(open(failover()));
        Topic topic = publishing.createTopic("orders");
        Session session = open(failover()).createSession(Session.CLIENT_ACKNOWLEDGE);
        MessageConsumer consumer = session.createSharedDurableConsumer(topic, "s");
        publish(publishing, topic, "1", "2", "3");
        assertEquals("1", text(consumer));

        broker.kill();
        broker.start();
        publish(publishing, topic, "4");
        Message again = next(consumer);
        assertEquals("1", again.getBody(String.class), "not acknowledged, so it comes again");
        assertTrue(again.getJMSRedelivered(), "a second receipt says so, also over a restart");
        assertEquals(List.of("2", "3", "4"), texts(consumer, 3));
    }

    @Test
    @DisplayName("SIGTERM: the broker exits 0, and after its start an inactive durable subscription has its backlog")
    void backlogSurvivesTermination() throws Exception {
        Connection first = open(failover());
        Session session = session(first);
        Topic topic = session.createTopic("orders");
        session.createSharedDurableConsumer(topic, "s", "region = 'eu'").close();
        Message message = session.createTextMessage("kept");
        message.setStringProperty("region", "eu");
        session.createProducer(topic).send(message);
        first.close();

        assertEquals(0, broker.terminate());
        broker.start();
        MessageConsumer again = session(open(failover())).createSharedDurableConsumer(topic, "s", "region = 'eu'");
        assertEquals("kept", text(again));
    }

    @Test
    @DisplayName("A not-shared durable consumer with ClientID gets back its own subscription, by failover")
    void unsharedReattaches() throws Exception {
        JmsConnectionFactory factory = failover();
        factory.setClientID("app");
        Session session = session(open(factory));
        Topic topic = session.createTopic("orders");
        MessageConsumer consumer = session.createDurableConsumer(topic, "d");
        broker.kill();
        broker.start();
        publish(session(open(failover())), topic, "after the restart");
        assertEquals("after the restart", text(consumer));
    }

    @Test
    @DisplayName("What was acknowledged and unsubscribed before a restart stays so")
    void endingsSurvive() throws Exception {
        Session session = session(open(failover()));
        Topic topic = session.createTopic("orders");
        MessageConsumer kept = session.createSharedDurableConsumer(topic, "kept");
        session.createSharedDurableConsumer(topic, "ended").close();
        publish(session, topic, "1", "2");
        assertEquals("1", text(kept));
        session.unsubscribe("ended");

        assertEquals(0, broker.terminate());
        broker.start();
        Session after = session(open(failover()));
        assertRefused(NOT_FOUND, () -> after.unsubscribe("ended"));
        assertEquals("2", text(kept));
        assertNothing(kept);
    }
}
