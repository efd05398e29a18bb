package dev.penstock.jms;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TransactionRolledBackException;
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

/** Transactions, and a broker that is killed around them, under clients that use failover. */
@DisplayName("Restart of the broker around a transaction")
class TransactionRestartTest extends JmsTestCase {
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

    private void restart() throws IOException {
        broker.kill();
        broker.start();
    }

    private JmsConnectionFactory failover() {
        return new JmsConnectionFactory(
                "guest",
                "guest",
                "failover:(amqp://" + broker.address() + ")?failover.reconnectDelay=50&failover.useReconnectBackOff=false");
    }

    private Session transacted() throws Exception {
        return open(failover()).createSession(Session.SESSION_TRANSACTED);
    }

    private void fill(String queue, String... texts) throws Exception {
        Session session = session(open(failover()));
        MessageProducer producer = session.createProducer(session.createQueue(queue));
        for (String text : texts) {
            producer.send(session.createTextMessage(text));
        }
    }

    private List<String> left(String queue) throws Exception {
        Connection connection = open(failover());
        Session session = session(connection);
        List<String> texts = rest(session.createConsumer(session.createQueue(queue)));
        connection.close();
        return texts;
    }

    @Test
    @DisplayName("What was committed is there after kill -9, and what was consumed is not")
    void committedSurvives() throws Exception {
        fill("in", "a", "b");
        Session session = transacted();
        MessageConsumer consumer = session.createConsumer(session.createQueue("in"));
        MessageProducer producer = session.createProducer(session.createQueue("out"));
        producer.send(session.createTextMessage(text(consumer)));
        session.commit();
        restart();
        assertEquals("b", text(consumer), "the same consumer goes on");
        session.commit();
        assertEquals(List.of("a"), left("out"));
        assertEquals(List.of(), left("in"));
    }

    @Test
    @DisplayName("What was not committed at kill -9 can't be: the client is told, and does it again")
    void openIsRolledBack() throws Exception {
        fill("in", "a");
        Session session = transacted();
        Queue out = session.createQueue("out");
        MessageConsumer consumer = session.createConsumer(session.createQueue("in"));
        MessageProducer producer = session.createProducer(out);
        producer.send(session.createTextMessage(text(consumer)));
        restart();
        assertThrows(TransactionRolledBackException.class, session::commit);
        assertEquals(List.of(), left("out"));
        Message again = next(consumer);
        assertEquals("a", again.getBody(String.class));
        assertTrue(again.getJMSRedelivered(), "a second receipt says so, also over a restart");
        producer.send(session.createTextMessage("a"));
        session.commit();
        assertEquals(List.of("a"), left("out"));
        assertEquals(List.of(), left("in"));
    }

    @Test
    @DisplayName("A transaction larger than what is written at once is there as a whole")
    void large() throws Exception {
        Session session = transacted();
        MessageProducer producer = session.createProducer(session.createQueue("out"));
        String text = "x".repeat(100_000);
        for (int number = 0; number < 100; number++) {
            producer.send(session.createTextMessage(number + text));
        }
        session.commit();
        restart();
        assertEquals(100, left("out").size());
    }
}
