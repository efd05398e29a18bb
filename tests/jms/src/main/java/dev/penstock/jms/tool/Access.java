package dev.penstock.jms.tool;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.apache.qpid.jms.JmsConnectionFactory;

/** How to reach the broker: {@code --uri}, {@code --user}, {@code --password}, and {@code --ca} (PEM) for TLS. */
final class Access {
    private Access() {}

    static JmsConnectionFactory factory(Options options) throws IOException, GeneralSecurityException {
        JmsConnectionFactory factory = new JmsConnectionFactory(
                options.text("user", "guest"), options.text("password", "guest"), options.required("uri"));
        String authority = options.text("ca", "");
        if (!authority.isEmpty()) {
            factory.setSslContext(trusting(Path.of(authority)));
        }
        return factory;
    }

    private static SSLContext trusting(Path authority) throws IOException, GeneralSecurityException {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (InputStream pem = Files.newInputStream(authority)) {
            store.setCertificateEntry("authority", CertificateFactory.getInstance("X.509").generateCertificate(pem));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context;
    }
}
