package dev.penstock.joram;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNotNull;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import dev.penstock.jms.OwnBroker;
import dev.penstock.jms.OwnBroker.Ending;
import java.util.ArrayList;
import java.util.List;
import javax.jms.InvalidDestinationRuntimeException;
import javax.jms.JMSConsumer;
import javax.jms.JMSContext;
import javax.jms.JMSException;
import javax.jms.JMSRuntimeException;
import javax.jms.MapMessage;
import javax.jms.Message;
import javax.jms.Queue;
import javax.jms.Topic;
import javax.jms.TransactionRolledBackRuntimeException;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.JmsTransactionInDoubtException;
import org.junit.After;
import org.junit.Before;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** Applications that still are {@code javax.jms} (Qpid JMS 1.x): JMS 2.0 over restarts of a broker of their own. */
public class JavaxTest {
    private static final long SOON = 240_000;

    @Rule
    public final TemporaryFolder folder = new TemporaryFolder();

    private final List<JMSContext> contexts = new ArrayList<>();
    private OwnBroker broker;

    @Before
    public void startBroker() throws Exception {
        broker = new OwnBroker(folder.newFolder("data").toPath());
        broker.start();
    }

    /**
     * Closes each context once it is connected again.
     *
     * <p>Qpid JMS (FailoverProvider.initializeNewConnection) leaves a session that is closed while it reconnects out of what it
     * makes anew, and then fails in the close: "session is null". An answered request shows that it is connected again.
     */
    @After
    public void stopBroker() {
        contexts.forEach(JMSContext::createTemporaryQueue);
        contexts.forEach(JMSContext::close);
        broker.close();
    }

    /** A context that survives restarts. */
    private JMSContext context(int mode) {
        String uri = "failover:(amqp://" + broker.address() + ")?failover.reconnectDelay=50&failover.useReconnectBackOff=false"
                + "&jms.requestTimeout=" + SOON;
        JMSContext context = new JmsConnectionFactory("guest", "guest", uri).createContext(mode);
        contexts.add(context);
        return context;
    }

    private static Message next(JMSConsumer consumer) {
        Message message = consumer.receive(SOON);
        assertNotNull("no message came", message);
        return message;
    }

    private static String text(JMSConsumer consumer) throws JMSException {
        return next(consumer).getBody(String.class);
    }

    /** What is done in one transaction. */
    private interface Work {
        void run() throws JMSException;
    }

    /** A restart has ended the transaction: the client says so, or, if it hears of the restart only now, that it can't know. */
    private static void assertNotCommitted(JMSContext context) {
        JMSRuntimeException told = assertThrows(JMSRuntimeException.class, context::commit);
        boolean says = told instanceof TransactionRolledBackRuntimeException;
        assertTrue(told.toString(), says || told.getCause() instanceof JmsTransactionInDoubtException);
    }

    /** Does the work and commits it; again from the start if a client that hears late of a restart rolls it back. */
    private static void committed(JMSContext context, Work work) throws JMSException {
        for (int attempt = 0; ; attempt++) {
            work.run();
            try {
                context.commit();
                return;
            } catch (TransactionRolledBackRuntimeException undone) {
                if (attempt == 3) {
                    throw undone;
                }
            }
        }
    }

    @Test
    public void sharedDurableConsumersGoOnAfterAKill() throws Exception {
        JMSContext context = context(JMSContext.CLIENT_ACKNOWLEDGE);
        Topic topic = context.createTopic("orders");
        JMSConsumer consumer = context.createSharedDurableConsumer(topic, "s", "region = 'eu'");
        JMSContext sending = context(JMSContext.AUTO_ACKNOWLEDGE);
        for (String region : List.of("eu", "us")) {
            sending.createProducer().setProperty("region", region).send(topic, region);
        }
        assertEquals("eu", text(consumer));
        broker.restart(Ending.KILLED);
        Message again = next(consumer);
        assertEquals("eu", again.getBody(String.class));
        assertTrue(again.getJMSRedelivered());
        context.acknowledge();
        assertNull(consumer.receiveNoWait());
        consumer.close();
        context.unsubscribe("s");
        assertThrows(InvalidDestinationRuntimeException.class, () -> context.unsubscribe("s"));
    }

    @Test
    public void aTransactionThatARestartBreaksIsRolledBackAndTold() throws Exception {
        JMSContext context = context(JMSContext.SESSION_TRANSACTED);
        Queue in = context.createQueue("in");
        Queue out = context.createQueue("out");
        JMSContext plain = context(JMSContext.AUTO_ACKNOWLEDGE);
        plain.createProducer().send(in, "order");
        JMSConsumer consumer = context.createConsumer(in);
        context.createProducer().send(out, text(consumer) + " never");
        broker.restart(Ending.TERMINATED);
        assertNotCommitted(context);
        committed(context, () -> context.createProducer().send(out, text(consumer) + " done"));
        broker.restart(Ending.KILLED);
        JMSConsumer results = plain.createConsumer(out);
        assertEquals("order done", text(results));
        assertNull(results.receiveNoWait());
    }

    @Test
    public void requestsWithMapsAreAnsweredAfterARestart() throws Exception {
        JMSContext client = context(JMSContext.AUTO_ACKNOWLEDGE);
        JMSContext server = context(JMSContext.AUTO_ACKNOWLEDGE);
        Queue service = client.createQueue("service");
        MapMessage request = client.createMapMessage();
        request.setBytes("raw", new byte[] {0, -1});
        request.setJMSReplyTo(client.createQueue("answers"));
        client.createProducer().setPriority(9).send(service, request);
        broker.restart(Ending.KILLED);
        MapMessage taken = (MapMessage) next(server.createConsumer(service));
        assertArrayEquals(new byte[] {0, -1}, taken.getBytes("raw"));
        assertEquals(9, taken.getJMSPriority());
        server.createProducer().setJMSCorrelationID(taken.getJMSMessageID()).send(taken.getJMSReplyTo(), "answer");
        Message answer = next(client.createConsumer(client.createQueue("answers")));
        assertEquals(request.getJMSMessageID(), answer.getJMSCorrelationID());
    }
}
