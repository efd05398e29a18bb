package dev.penstock.joram;

import java.util.Hashtable;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import javax.naming.Context;
import javax.naming.InitialContext;
import javax.naming.NameNotFoundException;
import javax.naming.NamingException;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.apache.qpid.jms.JmsQueue;
import org.apache.qpid.jms.JmsTopic;
import org.objectweb.jtests.jms.admin.Admin;

/**
 * What JORAM's tests ask of a provider's administration: names in a JNDI context, bound to objects of Qpid JMS.
 *
 * <p>The broker runs already ({@code pytest -m jms} starts it) and makes queues and exchanges when they are first named, so creating
 * one here is inventing a name for it. Each test makes its own {@code Admin} and thereby gets destinations nobody used before.
 */
public final class PenstockAdmin implements Admin {
    private final Map<String, Object> bound = new ConcurrentHashMap<>();
    private final String own = UUID.randomUUID().toString().substring(0, 8);

    @Override
    public String getName() {
        return "penstock";
    }

    @Override
    public Context createContext() throws NamingException {
        return new Names(bound);
    }

    @Override
    public void createConnectionFactory(String name) {
        String address = System.getProperty("penstock.amqp");
        if (address == null) {
            throw new IllegalStateException("the system property penstock.amqp is missing; run these tests by pytest -m jms");
        }
        bound.put(name, new JmsConnectionFactory("guest", "guest", "amqp://" + address));
    }

    @Override
    public void createQueueConnectionFactory(String name) {
        createConnectionFactory(name);
    }

    @Override
    public void createTopicConnectionFactory(String name) {
        createConnectionFactory(name);
    }

    @Override
    public void createQueue(String name) {
        bound.put(name, new JmsQueue(name + "-" + own));
    }

    @Override
    public void createTopic(String name) {
        bound.put(name, new JmsTopic(name + "-" + own));
    }

    @Override
    public void deleteQueue(String name) {
        bound.remove(name);
    }

    @Override
    public void deleteTopic(String name) {
        bound.remove(name);
    }

    @Override
    public void deleteConnectionFactory(String name) {
        bound.remove(name);
    }

    @Override
    public void deleteQueueConnectionFactory(String name) {
        bound.remove(name);
    }

    @Override
    public void deleteTopicConnectionFactory(String name) {
        bound.remove(name);
    }

    @Override
    public void startServer() {
        // it runs before the tests do
    }

    @Override
    public void stopServer() {
        // and after them
    }

    @Override
    public void start() {
        // nothing of ours to start
    }

    @Override
    public void stop() {
        bound.clear();
    }

    /** The names alone; nothing else of JNDI is asked for. */
    private static final class Names extends InitialContext {
        private final Map<String, Object> bound;

        Names(Map<String, Object> bound) throws NamingException {
            super(true);
            this.bound = bound;
        }

        @Override
        public Object lookup(String name) throws NamingException {
            Object found = bound.get(name);
            if (found == null) {
                throw new NameNotFoundException(name);
            }
            return found;
        }

        @Override
        public Hashtable<?, ?> getEnvironment() {
            return new Hashtable<>();
        }

        @Override
        public void close() {
            // holds nothing
        }
    }
}
