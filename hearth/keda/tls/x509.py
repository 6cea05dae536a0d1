"""What a server's certificate says of itself.  The one door to `cryptography`, which costs 11 MB
and a tenth of a second: imported where a service has TLS, and nowhere else."""

from dataclasses import dataclass

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

_KNOWN = (
    x509.AuthorityKeyIdentifier, x509.BasicConstraints, x509.CertificatePolicies,
    x509.CRLDistributionPoints, x509.ExtendedKeyUsage, x509.InhibitAnyPolicy, x509.KeyUsage,
    x509.NameConstraints, x509.OCSPNoCheck, x509.PolicyConstraints, x509.SubjectAlternativeName,
    x509.SubjectKeyIdentifier,
)  # fmt: skip
"""Those that OpenSSL lets be critical."""


class NotForServers(ValueError):
    """Its usage does not let a server show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """Moments are Unix seconds."""

    names: tuple[str, ...]
    """DNS names."""
    not_before_s: float
    not_after_s: float


def read(pem: str) -> Details:
    """Of the one certificate that the text holds.

    Raises NotForServers, and ValueError where it cannot be read or says something critical that
    nobody knows.
    """
    certificate = x509.load_pem_x509_certificate(pem.encode())
    extensions = {type(one.value): one for one in certificate.extensions}
    for one in certificate.extensions:
        if one.critical and not isinstance(one.value, _KNOWN):
            raise ValueError(f"unhandled critical extension {one.oid.dotted_string}")
    usage, extended = extensions.get(x509.KeyUsage), extensions.get(x509.ExtendedKeyUsage)
    if extended is not None and ExtendedKeyUsageOID.SERVER_AUTH not in extended.value:
        raise NotForServers
    if usage is not None and not (
        usage.value.digital_signature or usage.value.key_encipherment or usage.value.key_agreement
    ):
        raise NotForServers
    names = extensions.get(x509.SubjectAlternativeName)
    return Details(
        names=tuple(names.value.get_values_for_type(x509.DNSName)) if names is not None else (),
        not_before_s=certificate.not_valid_before_utc.timestamp(),
        not_after_s=certificate.not_valid_after_utc.timestamp(),
    )
